"""WN309 mean-of-powers: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_mean() -> object:
    x = torch.zeros(2, 4, requires_grad=True)
    x.pow(3).mean(1).pow(1 / 3).sum().backward()
    return x.grad


def of_a_learned_power() -> object:
    x = torch.zeros(2, 4, requires_grad=True)
    p = torch.tensor([3.0], requires_grad=True)
    x.pow(p).mean(1).pow(1 / p).sum().backward()
    return x.grad


def written_out() -> object:
    x = torch.zeros(2, 4, requires_grad=True)
    cubes = x * x * x
    pooled = (cubes.sum(1) / 4) ** (1 / 3)
    pooled.sum().backward()
    return x.grad


def clamped() -> object:
    x = torch.zeros(2, 4, requires_grad=True)
    x.clamp(min=1e-6).pow(3).mean(1).pow(1 / 3).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_mean, of_a_learned_power, written_out])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN309"
    assert said == snapshot


@pytest.mark.parametrize("program", [clamped])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
