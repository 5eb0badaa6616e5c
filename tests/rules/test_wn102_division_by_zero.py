"""WN102 division-by-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_quotient() -> object:
    return torch.ones(2) / torch.zeros(2)


def a_reciprocal() -> object:
    return 1 / torch.tensor([0.0, 2.0])


def a_reciprocal_root() -> object:
    return torch.rsqrt(torch.tensor([0.0, 2.0]))


def a_negative_power() -> object:
    return torch.tensor([0.0, 2.0]) ** -1.5


def a_denominator_away_from_zero() -> object:
    return torch.ones(2) / torch.zeros(2).clamp(min=1e-6)


def its_gradient() -> object:
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    torch.exp(-x.reciprocal()).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_quotient, a_reciprocal, a_reciprocal_root, a_negative_power, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN102"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_denominator_away_from_zero])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
