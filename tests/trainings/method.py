"""A siamese network trained by the methods of a class, with private state and a base class."""
# step: 9
# element: [4]
# birth: pole

import torch
from torch import nn


class BaseTrainer:
    def __init__(self, model: nn.Module, lr: float) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.__steps = 0

    def fit(self, batches: list[tuple[torch.Tensor, ...]]) -> None:
        for batch in batches:
            loss = self.training_step(*batch)
            self.__steps += 1
            print(self.__steps, repr(loss))

    def training_step(self, *batch: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class ContrastiveTrainer(BaseTrainer):
    def __init__(self, model: nn.Module, lr: float = 0.05, margin: float = 1.0) -> None:
        super().__init__(model, lr)
        self.__margin = margin

    def __distance(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        difference = self.model(left) - self.model(right)
        return torch.sqrt((difference * difference).sum(dim=1))  # born

    def loss(self, left: torch.Tensor, right: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
        distance = self.__distance(left, right)
        return torch.where(same, distance, (self.__margin - distance).clamp(min=0)).mean()


def make_batches(count: int) -> list[tuple[torch.Tensor, ...]]:
    left, right = torch.randn(count, 6, 8), torch.randn(count, 6, 8)
    right[8, 4] = left[8, 4]  # the same picture twice
    return [(a, b, torch.arange(6) % 2 == 0) for a, b in zip(left, right, strict=True)]


torch.manual_seed(1)
network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
ContrastiveTrainer(network).fit(make_batches(14))
