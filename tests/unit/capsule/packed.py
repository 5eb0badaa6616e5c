"""Runs of all kinds that end in a capsule, for tests of what is packed and of what reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import whynan
from whynan.records import Report


def transposed() -> Tensor:
    return torch.tensor([[1.0, 0.0], [2.0, 3.0]]).t().log()


def backward() -> Tensor:
    x = torch.zeros(3, 4, requires_grad=True)
    torch.sqrt(x[:, ::2]).sum().backward()
    assert x.grad is not None
    return x.grad


def in_place() -> Tensor:
    x = torch.tensor([1.0, 0.0, -1.0])
    return x.sqrt_()


def into_an_operand() -> Tensor:
    x = torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    x[0].log_()
    return x


def foreach_step() -> list[Tensor]:
    parameters = [torch.nn.Parameter(torch.ones(n)) for n in (2, 5)]
    optimizer = torch.optim.Adam(parameters, eps=0.0, foreach=True)
    parameters[0].grad, parameters[1].grad = torch.ones(2), torch.zeros(5)
    optimizer.step()
    return [p.detach() for p in parameters]


def single_step() -> Tensor:
    parameter = torch.nn.Parameter(torch.ones(5))
    optimizer = torch.optim.Adam([parameter], eps=0.0, foreach=False)
    parameter.grad = torch.zeros(5)
    optimizer.step()
    return parameter.detach()


def half() -> Tensor:
    return torch.full((4,), 300.0, dtype=torch.float16) ** 2


def brain() -> Tensor:
    return torch.tensor([1.0, 0.0], dtype=torch.bfloat16).log()


def double() -> Tensor:
    return torch.tensor([0.0], dtype=torch.float64) / torch.tensor([0.0], dtype=torch.float64)


def complex_numbers() -> Tensor:
    return torch.tensor([1e30 + 1j, 1 + 1j], dtype=torch.complex64) ** 2


def repeated() -> Tensor:
    return torch.zeros(1, 4).expand(3, 4).log()


def drawn() -> Tensor:
    torch.manual_seed(7)
    x = torch.empty(64)
    return x.normal_(0.0, 3e38)


def softmax_of_a_masked_row() -> Tensor:
    x = torch.zeros(2, 3)
    x[1] = -torch.inf
    return torch.softmax(x, 1)


def in_inference_mode() -> Tensor:
    with torch.inference_mode():
        return torch.zeros(2, 2) / torch.zeros(2, 2)


RUNS: dict[str, Callable[[], Any]] = {
    f.__name__: f
    for f in (
        transposed, backward, in_place, into_an_operand, foreach_step, single_step, half, brain, double,
        complex_numbers, repeated, drawn, in_inference_mode,
    )
}  # fmt: skip
"""Each has an escaped birth whose operation can be packed."""


def packed(target: Callable[[], Any], directory: Path, **options: Any) -> Report:
    """The report of a run whose capsule is in a folder."""
    return whynan.explain(target, capsule=directory, **options)
