"""The training steps that are timed: a tiny and a middling transformer, eager attention with -inf masks, a CNN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Program:
    """A training step by name, how it is built, and the ratios to the bare step that it is meant to stay under."""

    name: str
    build: Callable[[], Step]
    traced: float | None = None
    ranged: float | None = None


@dataclass
class Step:
    """A model with its optimizer and batch: one call is one whole training step."""

    model: nn.Module
    batch: Tensor
    optimizer: torch.optim.Optimizer

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def loss(self) -> Tensor:
        """The loss of the batch."""
        out = self.model(self.batch)
        if self.batch.dtype is torch.long:
            return F.cross_entropy(out.flatten(0, 1), self.batch.flatten())
        return out.square().mean()


class Block(nn.Module):
    """A pre-norm transformer block of four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        if mask is None:
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / (width // 4) ** 0.5
            attended = (scores + mask).softmax(-1) @ v
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A language model of some blocks; `eager` computes attention by hand, behind a mask of -inf."""

    def __init__(self, width: int, layers: int, *, eager: bool, words: int = 1000) -> None:
        super().__init__()
        self.eager = eager
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1) if self.eager else None
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


def _transformer(width: int, batch: int, length: int, *, layers: int = 6, eager: bool = False) -> Step:
    torch.manual_seed(0)
    model = Transformer(width, layers, eager=eager)
    tokens = torch.randint(0, 1000, (batch, length))
    return Step(model, tokens, torch.optim.AdamW(model.parameters(), lr=1e-4))


def _cnn(batch: int, size: int) -> Step:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for into, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return Step(model, torch.randn(batch, 3, size, size), torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9))


PROGRAMS = (
    Program("tiny transformer (d=64, 2 x 16)", lambda: _transformer(64, 2, 16), 3.0, 4.0),
    Program("transformer (d=256, 8 x 128)", lambda: _transformer(256, 8, 128), 1.25, 1.6),
    Program("eager attention, -inf masks", lambda: _transformer(256, 8, 128, eager=True), 1.5),
    Program("cnn (32 x 3 x 32 x 32)", lambda: _cnn(32, 32)),
)
QUICK = (
    Program("tiny transformer (d=16, 2 x 4)", lambda: _transformer(16, 2, 4, layers=1), 3.0, 4.0),
    Program("cnn (2 x 3 x 8 x 8)", lambda: _cnn(2, 8)),
)
