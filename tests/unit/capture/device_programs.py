"""Programs that are told of alike wherever their tensors are; run as a program, says what is told of each.

Arguments: the device; prints a JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import whynan
from tests import device

if TYPE_CHECKING:
    from collections.abc import Callable


def forward(at: str) -> None:
    x = torch.tensor([1.0, 0.0]).to(at).requires_grad_()
    torch.log(x).sum().backward()


def backward(at: str) -> None:
    x = torch.tensor([0.0, 1.0]).to(at).requires_grad_()
    torch.where(x > 0, x.sqrt(), x).sum().backward()


def gradient_penalty(at: str) -> None:
    """In its first backward the engine makes nodes of its own, in the thread of the device."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).to(at)
    x = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]).to(at).requires_grad_()
    (slope,) = torch.autograd.grad(net(x * x).sum(), x, create_graph=True)
    size = slope.square().sum(-1).sqrt()
    (size - 1).square().mean().backward()


def per_sample(at: str) -> Tensor:
    def energy(x: Tensor) -> Tensor:
        return torch.sqrt((x**2).sum())

    x = torch.ones(3, 2)
    x[1] = 0
    return torch.func.vmap(torch.func.grad(energy))(x.to(at))


class _Inner(torch.autograd.Function):
    """Its backward runs the engine again, in the thread that runs it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(inner.sin().sum(), inner)
        return slopes[0] * slope


def backward_within_a_backward(at: str) -> None:
    x = torch.tensor([0.0, 2.0]).to(at).requires_grad_()
    _Inner.apply(x.sqrt() * 2.0).sum().backward()


def penalty_of_products(at: str) -> None:
    """Nodes of both threads have the same numbers and names."""
    x = torch.tensor([1.0, 2.0]).to(at).requires_grad_()
    s = x * torch.tensor([1.0, torch.inf]).to(at)
    masked = torch.where(s.isfinite(), s, 0.0)
    (slope,) = torch.autograd.grad((x * x * x * x).sum(), x, create_graph=True)
    (slope.square().sum() + masked.sum()).backward()


def accumulation(at: str) -> None:
    w = nn.Parameter(torch.tensor([1.0]).to(at))
    (w * 3e38).backward()
    (w * 3e38).backward()
    torch.optim.SGD([w], lr=0.1).step()


def optimizer(at: str) -> None:
    w = nn.Parameter(torch.ones(2).to(at))
    adam = torch.optim.Adam([w], eps=0.0, foreach=False)
    (w * torch.tensor([0.0, 1.0]).to(at)).sum().backward()
    adam.step()


def healthy(at: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)).to(at)
    adam = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(3):
        adam.zero_grad()
        mask = torch.tensor([0.0, float("-inf")]).to(at)
        (net(torch.randn(4, 3).to(at)) + mask).softmax(-1).square().mean().backward()
        adam.step()


PROGRAMS: tuple[Callable[[str], object], ...] = (
    forward,
    backward,
    gradient_penalty,
    per_sample,
    backward_within_a_backward,
    penalty_of_products,
    accumulation,
    optimizer,
    healthy,
)


def told(program: Callable[[str], object], at: str) -> list[list[object]]:
    """What a report says of the births of a program."""
    report = whynan.explain(program, at)
    return [
        [
            *(f.rule, f.op, f.phase, f.birth, f.site and [f.site.line, f.site.code], f.grad_fn, f.element.index),
            [o.value for o in f.element.operands],
        ]
        for f in report.findings
    ]


if __name__ == "__main__":
    device.install()
    print(json.dumps({program.__name__: told(program, sys.argv[1]) for program in PROGRAMS}))
