"""WN115 quotient-with-limit: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def sine() -> object:
    x = torch.tensor([0.0, 1.0])
    return torch.sin(x) / x


def sine_of_a_multiple() -> object:
    angle = torch.pi * torch.tensor([0.0, 1.0])
    return angle.sin().div(angle)


def exponential_less_one() -> object:
    x = torch.tensor([0.0, 1.0])
    return (torch.exp(x) - 1) / x


def expm1() -> object:
    x = torch.tensor([0.0, 1.0])
    return torch.expm1(x) / x


def log1p() -> object:
    x = torch.tensor([0.0, 1.0])
    return x.log1p() / x


def one_less_cosine() -> object:
    x = torch.tensor([0.0, 1.0])
    return (1 - x.cos()) / x


def sinc() -> object:
    return torch.sinc(torch.tensor([0.0, 1.0]) / torch.pi)


def double_where() -> object:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    safe = torch.where(x == 0, 1.0, x)
    torch.where(x == 0, 1.0, torch.sin(safe) / safe).sum().backward()
    return x.grad


def its_gradient() -> object:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    torch.where(x == 0, 1.0, torch.sin(x) / x).sum().backward()
    return x.grad


def the_gradient_of_expm1() -> object:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    (torch.expm1(x) / x).masked_fill(x == 0, 1.0).sum().backward()
    return x.grad


@pytest.mark.parametrize(
    "program",
    [
        sine,
        sine_of_a_multiple,
        exponential_less_one,
        expm1,
        log1p,
        one_less_cosine,
        its_gradient,
        the_gradient_of_expm1,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN115"
    assert said == snapshot


@pytest.mark.parametrize("program", [sinc, double_where])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def of_another_operand() -> object:
    x, y = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])
    return torch.sin(x) / y


def without_a_limit() -> object:
    x = torch.tensor([0.0, 1.0])
    return torch.cos(x) / x


def itself() -> object:
    x = torch.tensor([0.0, 1.0])
    return x / x


@pytest.mark.parametrize("program", [of_another_operand, without_a_limit, itself])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN115"
