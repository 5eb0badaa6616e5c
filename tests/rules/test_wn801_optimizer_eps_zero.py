"""WN801 optimizer-eps-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn

import whynan


def adam() -> object:
    weight = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([weight], eps=0.0)
    (weight * torch.tensor([0.0, 1.0])).sum().backward()
    adam.step()
    return weight.detach()


def adam_in_one_kernel() -> object:
    weight = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([weight], eps=0.0, fused=True)
    (weight * torch.tensor([0.0, 1.0])).sum().backward()
    adam.step()
    return weight.detach()


def an_eps() -> object:
    weight = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([weight])
    (weight * torch.tensor([0.0, 1.0])).sum().backward()
    adam.step()
    return weight.detach()


class Lars(torch.optim.Optimizer):
    """An optimizer without an eps, as people write theirs."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"trust": 0.001})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                ratio = group["trust"] * p.norm() / p.grad.norm()
                p.sub_(ratio * p.grad)


def lars() -> object:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = Lars([weight])
    (weight * 0.0).sum().backward()
    optimizer.step()
    return weight.detach()


def test_a_line_of_an_optimizer_of_the_programs_own_is_the_place_and_has_its_own_rule() -> None:
    found = whynan.explain(lars).findings[0]
    assert (found.rule, found.phase) == ("WN101", "optimizer")
    assert found.site is not None
    assert found.site.code == 'group["trust"] * p.norm() / p.grad.norm()'
    assert found.site.function == "Lars.step"
    assert [o.expression for o in found.element.operands] == ['group["trust"] * p.norm()', "p.grad.norm()"]


@pytest.mark.parametrize("program", [adam, adam_in_one_kernel])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN801"
    assert said == snapshot


@pytest.mark.parametrize("program", [an_eps])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
