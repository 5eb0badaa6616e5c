"""Births of which more is asked than of most: what left them out, which operand they turn on, where they are from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INF = float("inf")
Values = list[Any]


def _gradient(function: Callable[[Tensor], Tensor], *values: float) -> list[float]:
    """The gradient of a function's sum."""
    x = torch.tensor(values, requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    return x.grad.tolist()


def selections() -> Values:
    """Roots at 0 whose result is left out afterwards, in every way in which a result can be."""
    zero = torch.tensor([0.0, 4.0])

    def put(x: Tensor) -> Tensor:
        root = x.sqrt() * 1.0
        root[torch.tensor([True, False])] = 0.0
        return root

    ways: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: torch.where(x > 0, x.sqrt(), 0.0),
        lambda x: x.sqrt().masked_fill(x == 0, 1.0),
        put,
        lambda x: x.log().nan_to_num(0.0, 0.0, 0.0),
        lambda x: x.log().clamp(min=-5.0),
        lambda x: F.relu(x.log()),
        lambda x: F.hardtanh(x.log()),
        lambda x: torch.maximum(x.log(), zero),
        lambda x: torch.minimum(-x.log(), zero),
        lambda x: x.sqrt().flip(0).unsqueeze(0).masked_fill(torch.tensor([[False, True]]), 0.0),
        lambda x: x.sqrt() * (x > 0),
    )
    return [_gradient(way, 0.0, 4.0) for way in ways]


def turns() -> Values:
    """Overflows in sums of products and in normalisations, a determinant without a logarithm, masked logits."""
    large = torch.full((2, 2), 3e38)
    mean, variance = torch.zeros(2), torch.tensor([0.0, 1e-45])
    logits = torch.tensor([[-INF, 0.0]])
    logarithms = logits.softmax(-1).log()
    return [
        (large @ large).tolist(),
        torch.addmm(large, torch.eye(2), large).tolist(),
        F.linear(large, large, large[0]).tolist(),
        F.batch_norm(large, mean, variance, eps=0.0).tolist(),
        F.layer_norm(torch.tensor([[1.0, 2.0]]), [2], weight=torch.tensor([3e38, 3e38]), eps=0.0).mul(2).tolist(),
        F.layer_norm(torch.tensor([[1.0, 1e4]]), [2], weight=torch.tensor([3.4e38, 3.4e38])).mul(1.0).tolist(),
        F.layer_norm(torch.ones(1, 2), [2], eps=0.0).tolist(),
        torch.logdet(torch.tensor([[1.0, 0.0], [0.0, -1.0]])).item(),
        logarithms.tolist(),
    ]


class _Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log()


def _part(x: Tensor, y: Tensor) -> Tensor:
    return y / x


def _graph() -> torch.fx.GraphModule:
    """A graph of which each operation carries the stack trace that it was traced with, as dynamo makes them."""
    graph = torch.fx.symbolic_trace(_part)
    code = _part.__code__
    line = code.co_firstlineno + 1
    place = f'  File "{code.co_filename}", line {line}, in _part'
    for node in graph.graph.nodes:
        node.meta["stack_trace"] = f"{place}\n    return y / x\n           ^^^^^\n"
    return graph


def outputs() -> Values:
    """What modules give without gradients, mended or let out; a graph; a part that is seen as complex."""
    model, found = _Log(), list[Any]()
    with torch.no_grad():
        for number in (0.0, 1.0):
            given = model(torch.tensor([number, 2.0, 4.0]))
            found += [given.clamp(min=-5.0).tolist(), torch.zeros_like(given).tolist(), given.tolist()]
        held = [model(torch.tensor([number, 2.0])) for number in (0.0, 1.0)]
        found.append((torch.stack(held) * 2).nan_to_num(neginf=0.0).tolist())
        found.append((model(torch.tensor([float("nan"), 1.0])) * torch.tensor([0.0, 1.0])).tolist())
        found.append(_graph()(torch.tensor([0.0, 1.0]), torch.ones(2)).tolist())
        found.append(torch.view_as_complex(torch.tensor([-1.0, 2.0, 3.0]).log()[:2]).abs().tolist())
        found.append(bool(torch.isclose(torch.tensor([INF]), torch.tensor([INF]))))
    found.append(float(torch.ones((), requires_grad=True)))
    return found
