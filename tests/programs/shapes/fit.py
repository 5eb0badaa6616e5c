"""Training inside a package, by relative imports."""

import torch

from .area import square
from .inner.side import SIDE


class Area(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, side):
        return self.scale * square(side)


def main():
    model, sides = Area(), torch.arange(1.0, 1.0 + SIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        loss = (model(sides) - sides * sides).square().mean()
        loss.backward()
        optimizer.step()
    print(loss.item().hex(), model.scale.item().hex(), type(model))


if __name__ == "__main__":
    main()
