"""Train a small segmentation network on images with bright blobs, loaded by two workers in random order.

One picture shows nothing, so its mask is black. Somewhere in the first epoch the loss turns to NaN, and every loss
after it. ``python train.py --fixed`` scales the masks by what they can hold, not by what they do hold.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, SAMPLES, EMPTY = 32, 160, 137
GRID = np.mgrid[:SIZE, :SIZE]


class Blobs(Dataset[tuple[Tensor, Tensor]]):
    """Noisy pictures of a blob, and masks as an annotation tool stores them: uint8, 0 or 255."""

    def __init__(self, fixed: bool) -> None:
        self.fixed = fixed

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        random = np.random.default_rng(index)
        row, column = random.integers(6, SIZE - 6, 2)
        inside = (GRID[0] - row) ** 2 + (GRID[1] - column) ** 2 < random.integers(3, 6) ** 2
        mask = np.where(inside, 255, 0).astype(np.uint8)
        if index == EMPTY:
            mask[:] = 0  # nobody annotated this one
        image = mask / 255 + random.normal(0.0, 0.5, mask.shape)
        mask = mask / 255 if self.fixed else mask / mask.max()
        return torch.from_numpy(image[None]).float(), torch.from_numpy(mask[None]).float()


class Segmenter(nn.Module):
    """A logit for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU()
        )
        self.classify = nn.Conv2d(8, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.features(images))


def train(fixed: bool) -> None:
    """One epoch, printed."""
    torch.manual_seed(0)
    model = Segmenter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = DataLoader(Blobs(fixed), batch_size=16, shuffle=True, num_workers=2)
    for step, (images, masks) in enumerate(loader, 1):
        loss = F.binary_cross_entropy_with_logits(model(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixed", action="store_true", help="scale the masks by 255")
    train(parser.parse_args().fixed)
