"""Train a small encoder on scikit-learn's digits, with GeM pooling and in-batch negatives.

An image that is moved down gets a blank row. The loss of the first step is finite, and its gradients are not: every
loss after it is NaN.
``python train.py --fixed`` trains with features that are kept away from zero.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F


class RowEncoder(nn.Module):
    """Each of the eight rows of an image becomes a non-negative feature vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(8, width, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        return self.project(rows).relu()


class GeM(nn.Module):
    """Generalised mean over the features: between the mean (p = 1) and the maximum (p large), with p learned."""

    def __init__(self, floor: float = 0.0) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(3.0))
        self.floor = floor

    def forward(self, features: Tensor) -> Tensor:
        if self.floor:
            features = features.clamp(min=self.floor)
        pooled = features.pow(self.p).mean(dim=-1)
        return pooled.pow(1.0 / self.p)


class Embedder(nn.Module):
    """An image as one vector, made of the strengths of its rows."""

    def __init__(self, width: int = 32, floor: float = 0.0) -> None:
        super().__init__()
        self.rows = RowEncoder(width)
        self.pool = GeM(floor)
        self.head = nn.Linear(8, 16)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.pool(self.rows(images)))


def ranking_loss(anchors: Tensor, positives: Tensor, scale: float = 20.0) -> Tensor:
    """Multiple negatives ranking: each anchor's own positive against those of the others."""
    similarity = F.cosine_similarity(anchors[:, None], positives[None], dim=-1) * scale
    return F.cross_entropy(similarity, torch.arange(len(anchors)))


def two_views(images: Tensor) -> tuple[Tensor, Tensor]:
    """An image, and the same moved one row down."""
    return images, F.pad(images, (0, 0, 1, 0))[:, :-1]


def train(steps: int, floor: float) -> None:
    """A few steps, printed."""
    torch.manual_seed(0)
    images = torch.tensor(load_digits().images, dtype=torch.float32) / 16
    model = Embedder(floor=floor)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    for step in range(steps):
        anchors, positives = two_views(images[step * 32 : (step + 1) * 32])
        loss = ranking_loss(model(anchors), model(positives))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixed", action="store_true", help="keep the features away from zero")
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    train(options.steps, 1e-6 if options.fixed else 0.0)
