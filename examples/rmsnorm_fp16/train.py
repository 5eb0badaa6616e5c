"""Train a classifier of temperature profiles in float32, then run it in float16 as a deployment would.

In float32 it is right nearly always, in float16 it answers the same for every profile, and no module ever gives an Inf
or a NaN. ``python train.py --fixed`` computes the norm in float32.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SENSORS, CLASSES = 32, 6


class RMSNorm(nn.Module):
    """Root mean square norm, as it is written in many places."""

    def __init__(self, width: int, upcast: bool, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.upcast = upcast
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if self.upcast else x
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


class Classifier(nn.Module):
    """Which of the known machines a profile of temperatures belongs to."""

    def __init__(self, upcast: bool) -> None:
        super().__init__()
        self.norm = RMSNorm(SENSORS, upcast)
        self.hidden = nn.Linear(SENSORS, 64)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, kelvin: Tensor) -> Tensor:
        return self.head(self.hidden(self.norm(kelvin)).relu())


def profiles(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Temperatures in kelvin, near 300, and the machine that they were measured at."""
    typical = 300 + 20 * torch.randn(CLASSES, SENSORS, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(seed)
    machine = torch.randint(CLASSES, (count,), generator=random)
    return typical[machine] + 5 * torch.randn(count, SENSORS, generator=random), machine


def train(model: Classifier, steps: int = 200) -> None:
    """A few steps in float32."""
    kelvin, machine = profiles(256, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = F.cross_entropy(model(kelvin), machine)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: Classifier, dtype: torch.dtype) -> float:
    """The share of right answers on new profiles."""
    kelvin, machine = profiles(512, seed=2)
    return (model(kelvin.to(dtype)).argmax(-1) == machine).float().mean().item()


def main(fixed: bool) -> None:
    """Train, and compare both precisions."""
    torch.manual_seed(0)
    model = Classifier(upcast=fixed)
    train(model)
    print(f"float32: {accuracy(model, torch.float32):.1%} right")
    print(f"float16: {accuracy(model.half(), torch.float16):.1%} right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixed", action="store_true", help="compute the norm in float32")
    main(parser.parse_args().fixed)
