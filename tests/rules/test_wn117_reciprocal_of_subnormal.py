"""WN117 reciprocal-of-subnormal: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def reciprocal() -> object:
    return torch.tensor([1e-39, 1.0]).reciprocal()


def quotient() -> object:
    x = torch.tensor([-1e-39, 1.0])
    return torch.tensor(3.0) / x


def in_float16() -> object:
    return 1 / torch.tensor([1e-5, 1.0]).half()


def its_gradient() -> object:
    x = torch.tensor([1e-39, 1.0])
    y = torch.tensor([0.0, 1.0], requires_grad=True)
    (y / x).sum().backward()
    return y.grad


def clamped() -> object:
    x = torch.tensor([1e-39, 1.0])
    return 1 / x.clamp_min(torch.finfo(x.dtype).tiny)


def in_float64() -> object:
    return 1 / torch.tensor([1e-39, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("program", [reciprocal, quotient, in_float16, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN117"
    assert said == snapshot


@pytest.mark.parametrize("program", [clamped, in_float64])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def zero() -> object:
    return 1 / torch.tensor([0.0, 1.0])


def a_large_numerator() -> object:
    return torch.tensor([1e38, 1.0]) / torch.tensor([1e-5, 1.0])


@pytest.mark.parametrize("program", [zero, a_large_numerator])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN117"
