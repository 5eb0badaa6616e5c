"""A transformer as torch exports it; its lines are looked up by the tests."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query = self.query(x).view(batch, length, self.heads, -1).transpose(1, 2)
        key = self.key(x).view(batch, length, self.heads, -1).transpose(1, 2)
        value = self.value(x).view(batch, length, self.heads, -1).transpose(1, 2)
        scores = query @ key.transpose(-1, -2) / (width / self.heads) ** 0.5
        weights = torch.softmax(scores, -1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, width)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.attention = Attention(width, 4)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        inner = torch.tanh(self.wide(self.after(x)))
        return x + self.narrow(inner)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return torch.log_softmax(self.head(x.mean(1)), -1)


def exported(file: Path, *, dynamo: bool) -> onnx.ModelProto:
    """The transformer, exported."""
    torch.manual_seed(0)
    model, x = Transformer().eval(), torch.randn(2, 7, 32)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = {"input_names": ["x"], "output_names": ["scores"]}
            torch.onnx.export(model, (x,), str(file), dynamo=dynamo, verbose=False, external_data=False, **names)
    finally:
        logging.disable(logging.NOTSET)
    return onnx.load(file)
