"""WN101 zero-over-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def in_place() -> object:
    x = torch.zeros(2)
    x.div_(torch.zeros(2))
    return x


def complex_numbers() -> object:
    z = torch.zeros(2, dtype=torch.complex64)
    return z / z.abs()


def a_sinc_of_a_safe_operand() -> object:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    safe = torch.where(x == 0, 1.0, x)
    torch.where(x == 0, 1.0, safe.sin() / safe).sum().backward()
    return x.grad


def a_count_of_at_least_one() -> object:
    kept = torch.zeros(2, 3)
    values = torch.ones(2, 3)
    return (values * kept).sum(1) / kept.sum(1).clamp(min=1)


def the_gradient_of_a_hypotenuse() -> object:
    x, y = (torch.zeros(2, requires_grad=True) for _ in range(2))
    torch.hypot(x, y).sum().backward()
    return x.grad


def the_second_derivative_of_a_norm() -> object:
    x = torch.zeros(3, requires_grad=True)
    (slope,) = torch.autograd.grad(x.norm(), x, create_graph=True)
    slope.sum().backward()
    return x.grad


@pytest.mark.parametrize(
    "program", [in_place, complex_numbers, the_gradient_of_a_hypotenuse, the_second_derivative_of_a_norm]
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN101"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_count_of_at_least_one, a_sinc_of_a_safe_operand])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
