"""WN305 exponent-of-negative: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_learned_exponent() -> object:
    p = torch.tensor([2.0], requires_grad=True)
    torch.tensor([-2.0, 2.0]).pow(p).sum().backward()
    return p.grad


def a_positive_base() -> object:
    p = torch.tensor([2.0], requires_grad=True)
    torch.tensor([-2.0, 2.0]).abs().clamp(min=1e-6).pow(p).sum().backward()
    return p.grad


@pytest.mark.parametrize("program", [a_learned_exponent])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN305"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_positive_base])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
