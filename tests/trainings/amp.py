"""A small attention classifier in mixed precision: autocast to bfloat16 and a gradient scaler."""
# step: 11
# element: [1, 0]
# birth: invalid

import torch
from torch import nn

torch.manual_seed(15)


class Attention(nn.Module):
    """One head of attention over padded sequences, pooled by a learned query."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.query = nn.Parameter(torch.randn(width))
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        scores = (self.key(x) * self.query).sum(dim=-1)
        scores = scores.masked_fill(padding, float("-inf"))
        weights = scores.softmax(dim=-1)  # born
        pooled = (weights[:, None, :] @ self.value(x)).squeeze(1)
        return self.head(pooled)


sequences = torch.randn(84, 6, 8)
lengths = torch.randint(1, 7, (84,))
lengths[61] = 0  # nothing was left after cleaning
padding = torch.arange(6) >= lengths[:, None]
labels = torch.randint(3, (84,))

model = Attention()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for step, rows in enumerate(torch.arange(84).split(6), start=1):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(sequences[rows], padding[rows])
        loss = nn.functional.cross_entropy(logits, labels[rows])
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(step, repr(loss.item()), f"scale {scaler.get_scale():g}")
