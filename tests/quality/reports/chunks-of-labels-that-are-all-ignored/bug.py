from typing import List

import torch
import torch.nn.functional as F
from torch import nn


class CEWithChunkedOutputLoss(nn.Module):
    def __init__(self, num_output_chunks: int = 4, ignore_index: int = -100):
        super().__init__()
        self.num_output_chunks = num_output_chunks
        self.ignore_index = ignore_index

    def compute_cross_entropy(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.float(), labels, ignore_index=self.ignore_index, reduction="sum")

    def forward(self, logits: List[torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        total_elements = (labels != self.ignore_index).sum()
        chunks = [chunk.reshape(-1) for chunk in labels.chunk(self.num_output_chunks, dim=1)]
        flat = [chunk.reshape(-1, chunk.size(-1)) for chunk in logits]
        total_loss = 0.0
        for logits_chunk, labels_chunk in zip(flat, chunks):
            total_loss += self.compute_cross_entropy(logits_chunk, labels_chunk)
        return total_loss / total_elements


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(64, 24), nn.Linear(24, 64))
loss_fn = CEWithChunkedOutputLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(4):
    tokens = torch.randint(0, 64, (2, 16))
    labels = tokens.roll(-1, 1)
    labels[:, :6] = -100
    if step == 2:
        labels[:] = -100  # truncated: nothing but the prompt is left
    logits = model(tokens).chunk(loss_fn.num_output_chunks, dim=1)
    loss = loss_fn(list(logits), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}|loss: {loss.item():.4f}")
