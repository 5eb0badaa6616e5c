"""WN303 pow-at-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_mean() -> object:
    x = torch.zeros(2, 3, requires_grad=True)
    x.mean(1).pow(1 / 3).sum().backward()
    return x.grad


def a_learned_power() -> object:
    x = torch.zeros(2, 3, requires_grad=True)
    p = torch.tensor(3.0)
    x.mean(1).pow(1 / p).sum().backward()
    return x.grad


def kept_away_from_zero() -> object:
    x = torch.zeros(2, 3, requires_grad=True)
    x.clamp(min=1e-6).pow(3).mean(1).pow(1 / 3).sum().backward()
    return x.grad


def focal() -> object:
    p = torch.tensor([1.0, 0.5], requires_grad=True)
    (-((1 - p) ** 0.5) * torch.log(p)).sum().backward()
    return p.grad


@pytest.mark.parametrize("program", [a_mean, a_learned_power, focal])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN303"
    assert said == snapshot


@pytest.mark.parametrize("program", [kept_away_from_zero])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
