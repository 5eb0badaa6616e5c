"""WN302 sqrt-of-negative: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_variance_by_subtraction() -> object:
    x = torch.tensor([1.0])
    return (x.square() - 2).sqrt()


def an_eigenvalue() -> object:
    values, _ = torch.linalg.eigh(torch.tensor([[1.0, 0.0], [0.0, -0.25]]))
    return values.sqrt()


def clamped() -> object:
    x = torch.tensor([1.0])
    return (x.square() - 2).clamp(min=0).sqrt()


def its_gradient() -> object:
    x = torch.tensor([-1.0, 4.0], requires_grad=True)
    x.sqrt().nansum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_variance_by_subtraction, an_eigenvalue, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN302"
    assert said == snapshot


@pytest.mark.parametrize("program", [clamped])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
