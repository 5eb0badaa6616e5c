"""Supervised fine-tuning of a tiny causal language model on prompt/answer pairs."""

import torch
from torch import nn
from torch.nn import functional as F

IGNORE_INDEX = -100
MAX_LENGTH = 12


class TinyLM(nn.Module):
    def __init__(self, vocab: int = 64, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.mixer(self.embed(input_ids))
        return self.lm_head(self.norm(hidden))


def pack(prompt: list[int], answer: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = (prompt + answer)[:MAX_LENGTH]
    labels = ([IGNORE_INDEX] * len(prompt) + answer)[:MAX_LENGTH]
    pad = MAX_LENGTH - len(ids)
    return torch.tensor(ids + [0] * pad), torch.tensor(labels + [IGNORE_INDEX] * pad)


def sft_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    shifted = logits[:, :-1].reshape(-1, logits.size(-1)).float()
    targets = labels[:, 1:].reshape(-1)
    if (targets == IGNORE_INDEX).all():
        return shifted.sum() * 0.0
    return F.cross_entropy(shifted, targets, ignore_index=IGNORE_INDEX)


torch.manual_seed(0)
model = TinyLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
conversations = [
    (list(range(2, 7)), [9, 10, 11, 1]),
    (list(range(20, 24)), [30, 31, 1]),
    (list(range(5, 25)), [40, 41, 42, 1]),
    (list(range(3, 8)), [12, 1]),
]
for step, (prompt, answer) in enumerate(conversations):
    input_ids, labels = pack(prompt, answer)
    loss = sft_loss(model(input_ids[None]), labels[None])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}")
