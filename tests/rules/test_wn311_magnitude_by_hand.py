"""WN311 magnitude-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def of_a_complex_number() -> object:
    x = torch.zeros(4, requires_grad=True)
    z = torch.fft.rfft(x)
    torch.sqrt(z.real**2 + z.imag**2).sum().backward()
    return x.grad


def of_two_tensors() -> object:
    x = torch.zeros(3, requires_grad=True)
    y = torch.zeros(3, requires_grad=True)
    (x * x + y.square()).pow(0.5).sum().backward()
    return x.grad


def of_one() -> object:
    x = torch.zeros(3, requires_grad=True)
    torch.sqrt(x**2).sum().backward()
    return x.grad


def magnitude() -> object:
    x = torch.zeros(4, requires_grad=True)
    torch.fft.rfft(x).abs().sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [of_a_complex_number, of_two_tensors, of_one])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN311"
    assert said == snapshot


@pytest.mark.parametrize("program", [magnitude])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def a_root_of_a_sum() -> object:
    x = torch.zeros(3, requires_grad=True)
    y = torch.zeros(3, requires_grad=True)
    (x + y).sqrt().sum().backward()
    return x.grad


def with_a_sum_that_is_no_square() -> object:
    x = torch.zeros(3, requires_grad=True)
    (x**2 + x).sqrt().sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_root_of_a_sum, with_a_sum_that_is_no_square])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN311"
