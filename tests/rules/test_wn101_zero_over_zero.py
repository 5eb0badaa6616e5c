"""WN101 zero-over-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_masked_mean() -> object:
    kept = torch.zeros(2, 3)
    values = torch.ones(2, 3)
    return (values * kept).sum(1) / kept.sum(1)


def in_place() -> object:
    x = torch.zeros(2)
    x.div_(torch.zeros(2))
    return x


def complex_numbers() -> object:
    z = torch.zeros(2, dtype=torch.complex64)
    return z / z.abs()


def a_sinc_that_is_selected_away() -> object:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    torch.where(x == 0, 1.0, x.sin() / x).sum().backward()
    return x.grad


def a_sinc_of_a_safe_operand() -> object:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    safe = torch.where(x == 0, 1.0, x)
    torch.where(x == 0, 1.0, safe.sin() / safe).sum().backward()
    return x.grad


def a_count_of_at_least_one() -> object:
    kept = torch.zeros(2, 3)
    values = torch.ones(2, 3)
    return (values * kept).sum(1) / kept.sum(1).clamp(min=1)


@pytest.mark.parametrize("program", [a_masked_mean, in_place, complex_numbers, a_sinc_that_is_selected_away])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN101"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_count_of_at_least_one, a_sinc_of_a_safe_operand])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
