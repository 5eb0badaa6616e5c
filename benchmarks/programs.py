"""The training steps that are timed: a tiny and a middling transformer, eager attention with -inf masks, a CNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Program:
    """A training step by name, how it is built, and the ratios to the bare step that it is meant to stay under.

    `over_empty`: the same for a trace, as a ratio to a step under an empty dispatch mode.
    `steps` are timed in one turn, so that a turn is long against the clock and short against the machine's moods.
    """

    name: str
    build: Callable[[], Step]
    steps: int
    traced: float | None = None
    ranged: float | None = None
    watched: float | None = None
    over_empty: float | None = None
    device: str = "cpu"


@dataclass
class Step:
    """A model that returns its loss, with optimizer and batch: one call is one whole training step."""

    model: nn.Module
    batch: Tensor
    optimizer: torch.optim.Optimizer

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.batch).backward()
        self.optimizer.step()


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
    """A language model of some blocks, to its loss; `eager` computes attention by hand, behind a mask of -inf."""

    def __init__(self, width: int, layers: int, *, eager: bool, words: int = 1000) -> None:
        super().__init__()
        self.eager = eager
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        mask = x.new_full((tokens.shape[1],) * 2, float("-inf")).triu(1) if self.eager else None
        for block in self.blocks:
            x = block(x, mask)
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


class Pictures(nn.Module):
    """A small convolutional network, to its loss."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for into, out in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        labels = torch.arange(images.shape[0], device=images.device) % 10
        return F.cross_entropy(self.head(self.layers(images)), labels)


def _transformer(
    width: int, batch: int, length: int, *, layers: int = 6, eager: bool = False, to: Sequence[Any] = ("cpu",)
) -> Step:
    torch.manual_seed(0)
    model = Transformer(width, layers, eager=eager).to(*to)
    tokens = torch.randint(0, 1000, (batch, length)).to(*to[:1])
    return Step(model, tokens, torch.optim.AdamW(model.parameters(), lr=1e-4))


def _cnn(batch: int, size: int, device: str = "cpu") -> Step:
    torch.manual_seed(0)
    model = Pictures().to(device)
    images = torch.randn(batch, 3, size, size).to(device)
    return Step(model, images, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9))


PROGRAMS = (
    Program("tiny transformer (d=64, 2 x 16)", lambda: _transformer(64, 2, 16), 10, 3.0, 4.0, 1.1, 1.6),
    Program("transformer (d=256, 8 x 128)", lambda: _transformer(256, 8, 128), 1, 1.25, 1.6, 1.02),
    Program("eager attention, -inf masks (d=256, 8 x 128)", lambda: _transformer(256, 8, 128, eager=True), 1, 1.5),
    Program("cnn (32 x 3 x 32 x 32)", lambda: _cnn(32, 32), 4),
)
ON_CUDA = (
    Program(
        "transformer (d=256, 8 x 128), cuda",
        lambda: _transformer(256, 8, 128, to=("cuda",)),
        20,
        device="cuda",
    ),
    Program(
        "transformer (d=1024, 24 layers, 8 x 1024, bfloat16), cuda",
        lambda: _transformer(1024, 8, 1024, layers=24, to=("cuda", torch.bfloat16)),
        5,
        device="cuda",
    ),
    Program("cnn (256 x 3 x 32 x 32), cuda", lambda: _cnn(256, 32, "cuda"), 20, device="cuda"),
)
# They show that everything runs, and carry no target: at such sizes only the call into Python is measured.
QUICK = (
    Program("quick transformer (d=16, 2 x 4)", lambda: _transformer(16, 2, 4, layers=1), 2),
    Program("quick eager attention (d=16, 2 x 4)", lambda: _transformer(16, 2, 4, layers=1, eager=True), 2),
    Program("quick cnn (2 x 3 x 8 x 8)", lambda: _cnn(2, 8), 2),
)


def program(name: str) -> Program:
    """The program of that name; raises ``KeyError``."""
    return {p.name: p for p in (*PROGRAMS, *ON_CUDA, *QUICK)}[name]
