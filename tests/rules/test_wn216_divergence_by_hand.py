"""WN216 divergence-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def p_is_zero() -> object:
    p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    return (p * (p.log() - q.log())).sum()


def q_is_zero() -> object:
    p, q = torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])
    ratio = torch.log(p) - torch.log(q)
    return torch.sum(ratio * p)


def kl_div() -> object:
    p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    return F.kl_div(q.log(), p, reduction="sum")


def its_gradient() -> object:
    p, q = torch.tensor([1.0, 0.0], requires_grad=True), torch.tensor([0.5, 0.5])
    torch.where(p > 0, p * (p.log() - q.log()), 0.0).sum().backward()
    return p.grad


@pytest.mark.parametrize("program", [p_is_zero, q_is_zero, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN216"
    assert said == snapshot


@pytest.mark.parametrize("program", [kl_div])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
