"""A program with bad numbers of every kind, in which whatever has a name or a value is a secret."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import warnings

import numpy as np
import torch
from torch import Tensor, nn

import whynan

sys.path.insert(0, os.path.expanduser("~/library"))
from geheim_library import geheim_distance  # pyright: ignore[reportMissingImports]


class GeheimNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.geheim_layer = nn.Sequential(nn.Linear(2, 2), nn.Softplus())
        self.geheim_weight = nn.Parameter(torch.tensor([0.5, -0.7314159]))
        self.register_buffer("geheim_buffer", torch.full((2,), float("nan")))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"geheim key": torch.log(self.geheim_layer(x) * 0 + self.geheim_weight)}


class GeheimPart(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.7314159).log()


class GeheimModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.geheim_part = GeheimPart()

    def forward(self, x: Tensor) -> Tensor:
        return self.geheim_part(x)


class GeheimFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return gradient / (x - x)


@dataclasses.dataclass
class Output:
    geheim_field: Tensor


class Wrapped(nn.Module):
    def forward(self, x: Tensor) -> Output:
        return Output(geheim_field=(x - x) / (x - x))


@torch.library.custom_op("geheim_lib::geheim_operator", mutates_args=())
def geheim_operator(geheim_operand: Tensor) -> Tensor:
    return geheim_operand.clone() / 0


def geheim_forward() -> None:
    net = GeheimNet()
    with torch.no_grad():
        net(torch.ones(2))
    net(torch.ones(2))["geheim key"].sum().backward()


def forward_in_a_module() -> Tensor:
    return GeheimModel()(torch.zeros(2))


def backward() -> None:
    w = torch.ones(2, requires_grad=True)
    GeheimFunction.apply(w).sum().backward()


def accumulation() -> None:
    geheim_leaf = torch.ones(2, dtype=torch.float16, requires_grad=True)
    for _ in range(2):
        (geheim_leaf * 40000).sum().backward()


def optimizer() -> None:
    geheim_parameter = torch.ones(3, requires_grad=True)
    adam = torch.optim.Adam([geheim_parameter], lr=0.1, eps=0.0)
    (geheim_parameter * 0).sum().backward()
    adam.step()


def entered() -> None:
    data = torch.from_numpy(np.load(os.path.expanduser("~/geheim_data/geheim_set.npy"))).float()
    w = torch.ones(3, requires_grad=True)
    (w * data).sum().backward()


def damaging() -> Tensor:
    geheim_big = torch.full((3,), 1e30) * torch.tensor([1.0, 2.0, 0.7314159])
    return nn.Identity()(geheim_big / torch.sqrt(geheim_big * geheim_big))


def custom() -> Tensor:
    return nn.Identity()(geheim_operator(torch.ones(2)))


def meant() -> Tensor:
    with whynan.allow("WN101", reason="geheim_reason"):
        zero = torch.zeros(2)
        return nn.Identity()(zero / zero)


def meant_by_a_comment() -> Tensor:
    zero = torch.zeros(2)
    unused = zero + 1  # whynan: allow geheim-unused-rule, because nothing is known of it
    return nn.Identity()(zero / zero * unused)  # whynan: allow WN101 geheim_comment


def printed() -> None:
    geheim_printed = torch.zeros(2).log()
    print(f"the value is {geheim_printed}")


def harmless() -> Tensor:
    geheim_harmless = torch.zeros(3).log()
    return torch.nan_to_num(geheim_harmless, neginf=0.0)


def in_a_thread() -> None:
    other = threading.Thread(target=lambda: torch.ones(2).log(), name="geheim_thread")
    other.start()
    other.join()


warnings.warn("geheim_warning", stacklevel=1)
geheim_forward()
backward()
accumulation()
optimizer()
entered()
printed()
in_a_thread()
kept = [
    forward_in_a_module(),
    damaging(),
    custom(),
    meant(),
    meant_by_a_comment(),
    harmless(),
    Wrapped()(torch.ones(2)),
]
geheim_distance(torch.zeros(2)).backward()
raise ValueError("geheim_exception")
