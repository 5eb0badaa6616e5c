"""A binary classifier with gradient accumulation over four micro-batches, loaded by two workers."""
# step: 11
# element: [1]
# birth: pole

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ACCUMULATE = 4


class Clicks(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(2)
        self.features = torch.rand(size, 5, generator=generator)
        self.features[169] *= 1000  # a crawler
        self.clicked = (torch.rand(size, generator=generator) < 0.3).float()

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.features[index], self.clicked[index]


def binary_loss(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    positive = y * torch.log(p + 1e-12)
    negative = (1 - y) * torch.log(1 - p)  # born
    return -(positive + negative).mean()


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 1), nn.Sigmoid())
    nn.init.constant_(model[0].weight, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    loader = DataLoader(Clicks(240), batch_size=4, num_workers=2)
    total = 0.0
    for micro, (x, y) in enumerate(loader, start=1):
        loss = binary_loss(model(x).squeeze(1), y) / ACCUMULATE
        loss.backward()
        total += loss.item()
        if micro % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
            print(micro // ACCUMULATE, repr(total))
            total = 0.0


if __name__ == "__main__":
    main()
