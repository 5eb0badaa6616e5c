"""WN307 root-of-magnitude: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_root() -> object:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    x.abs().sqrt().sum().backward()
    return x.grad


def a_power() -> object:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    torch.pow(torch.abs(x), 0.5).sum().backward()
    return x.grad


def padded() -> object:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    (x * torch.rsqrt(x.abs() + 1e-6)).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_root, a_power])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN307"
    assert said == snapshot


@pytest.mark.parametrize("program", [padded])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
