"""Models that are exported in several ways: ResNet-50, a transformer, an LSTM, a loop, one of waves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

EXPORTS = {"d18": (True, 18), "d20": (True, 20), "t17": (False, 17), "t13": (False, 13)}
"""By name: whether by the exporter that is the default, and the opset."""


class Block(nn.Module):
    """Three convolutions beside a short cut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.down = nn.Identity() if before == after else shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.down(x))


class ResNet50(nn.Module):
    """ResNet-50 with the statistics of one that was trained."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, before = list[nn.Module](), 64
        for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for number in range(count):
                blocks.append(Block(before, width, 1 if number or width == 64 else 2))
                before = 4 * width
        self.layers, self.fc = nn.Sequential(*blocks), nn.Linear(before, 1000)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 2)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, 0, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(F.max_pool2d(F.relu(self.bn(self.stem(x))), 3, 2, 1))
        return self.fc(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Attention(nn.Module):
    """Self-attention with a mask of keys."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, size = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, size // self.heads).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) / (size // self.heads) ** 0.5
        weights = scores.masked_fill(mask[:, None, None, :] == 0, -1e9).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, size))


class Layer(nn.Module):
    """One layer of a transformer."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(size, heads)
        self.before, self.between = nn.LayerNorm(size), nn.LayerNorm(size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.before(x), mask)
        return x + self.down(F.gelu(self.up(self.between(x))))


class Transformer(nn.Module):
    """A small transformer over tokens."""

    def __init__(self, size: int = 32, heads: int = 4, layers: int = 3, tokens: int = 100) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, size)
        self.positions = nn.Parameter(torch.randn(64, size) * 0.1)
        self.layers = nn.ModuleList(Layer(size, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, tokens)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    """Two layers of LSTM in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, 16)
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (hidden, _) = self.lstm(torch.tanh(self.embedding(x)))
        return F.log_softmax(self.head(torch.sigmoid(y)), -1), hidden


class Wave(nn.Module):
    """Convolutions of one dimension, with what is written as several nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 16, 5, padding=2)
        self.norm = nn.GroupNorm(4, 16)
        self.up = nn.ConvTranspose1d(16, 8, 4, 2, 1)
        self.last = nn.Conv1d(8, 2, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.elu(self.up(F.silu(self.norm(self.first(x)))))
        y = self.last(F.avg_pool1d(y, 3, 1, 1))
        return torch.sqrt(y * y + 1e-6), torch.exp(-y.abs()).mean(-1)


class Loop(nn.Module):
    """A recurrence by hand, which is a Loop in every export."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.mix, self.given = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(6, 8)
        self.head = nn.Linear(8, 3)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * h + (1 - gate) * torch.tanh(self.mix(h) + self.given(x))

    def forward(self, x: Tensor) -> Tensor:
        def step(n: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            return n + 1, self.step(torch.index_select(x, 0, n.reshape(1))[0], h)

        first = torch.tensor(0), torch.zeros(x.shape[1], 8)
        return self.head(torch.while_loop(lambda n, _: n < x.shape[0], step, first)[1])


class ScriptedLoop(Loop):
    """The same for the exporter that takes TorchScript."""

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.shape[1], 8)
        for n in range(x.shape[0]):
            h = self.step(x[n], h)
        return self.head(h)


def _made() -> Iterator[tuple[str, nn.Module, dict[str, Tensor]]]:
    torch.manual_seed(0)
    yield "resnet50", ResNet50(), {"x": torch.randn(1, 3, 64, 64)}
    mask = torch.ones(2, 12)
    mask[1, 9:] = 0
    yield "transformer", Transformer(), {"ids": torch.randint(0, 100, (2, 12)), "mask": mask}
    yield "recurrent", Recurrent(), {"x": torch.randn(2, 7, 8)}
    yield "wave", Wave(), {"x": torch.randn(2, 4, 20)}
    yield "loop", Loop(), {"x": torch.randn(5, 2, 6)}


MODELS = ("resnet50", "transformer", "recurrent", "wave", "loop")


@cache
def exported(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Write every model to a folder, as a program and in each export; its inputs by name."""
    inputs: dict[str, dict[str, np.ndarray]] = {}
    for name, module, given in _made():
        module.eval()
        inputs[name] = {key: value.numpy() for key, value in given.items()}
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.export.save(torch.export.export(module, (), kwargs=given), folder / f"{name}.pt2")
            for tag, (dynamo, opset) in EXPORTS.items():
                more: dict[str, Any] = {"external_data": False} if dynamo else {}
                exportable: Any = module
                if isinstance(module, Loop) and not dynamo:
                    exportable = ScriptedLoop().eval()
                    exportable.load_state_dict(module.state_dict())
                    exportable, more = torch.jit.script(exportable), {"dynamic_axes": {"x": {0: "length"}}}
                torch.onnx.export(
                    exportable,
                    tuple(given.values()),
                    str(folder / f"{name}-{tag}.onnx"),
                    input_names=list(given),
                    dynamo=dynamo,
                    opset_version=opset,
                    verbose=False,
                    **more,
                )
    return inputs
