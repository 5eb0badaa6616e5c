"""A sentence regressor with masked mean pooling; the step is a closure over model and optimizer."""
# step: 11
# element: [1, 0]
# birth: invalid

from collections.abc import Callable

import torch
from torch import nn

torch.manual_seed(11)


class MeanPooled(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, 1)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens) * mask[:, :, None]
        pooled = hidden.sum(dim=1) / mask.sum(dim=1, keepdim=True)  # born
        return self.head(pooled).squeeze(-1)


def make_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., float]:
    def step(tokens: torch.Tensor, mask: torch.Tensor, target: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = (model(tokens, mask) - target).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


tokens = torch.randint(1, 50, (80, 7))
lengths = torch.randint(1, 8, (80,))
lengths[22] = 0  # an empty sentence
mask = (torch.arange(7) < lengths[:, None]).float()
targets = torch.randn(80)

model = MeanPooled(50, 8)
step = make_step(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
order = torch.randperm(80)
for number, start in enumerate(range(0, 80, 5), start=1):
    rows = order[start : start + 5]
    print(number, repr(step(tokens[rows], mask[rows], targets[rows])))
