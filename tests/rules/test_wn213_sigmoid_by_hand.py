"""WN213 sigmoid-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_quotient() -> object:
    x = torch.tensor([100.0, 1.0])
    return x.exp() / (1 + x.exp())


def of_one_exponential() -> object:
    e = torch.tensor([100.0, 1.0]).exp()
    return e.div(e.add(1.0))


def its_gradient() -> object:
    x = torch.tensor([-100.0, 1.0], requires_grad=True)
    (1 / (1 + torch.exp(-x))).sum().backward()
    return x.grad


def sigmoid() -> object:
    return torch.sigmoid(torch.tensor([100.0, 1.0]))


def the_gradient_of_one_exponential() -> object:
    x = torch.tensor([-100.0, 1.0], requires_grad=True)
    (1 / (1 + torch.exp(-x))).sum().backward()
    return x.grad


def the_gradient_of_a_quotient() -> object:
    x = torch.tensor([100.0, 1.0], requires_grad=True)
    torch.where(x > 80, 1.0, x.exp() / (1 + x.exp())).sum().backward()
    return x.grad


@pytest.mark.parametrize(
    "program",
    [a_quotient, of_one_exponential, the_gradient_of_one_exponential, the_gradient_of_a_quotient, its_gradient],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN213"
    assert said == snapshot


@pytest.mark.parametrize("program", [sigmoid])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def an_exponential_that_is_selected_away() -> object:
    x = torch.tensor([100.0, -1.0], requires_grad=True)
    torch.where(x > 0, x, torch.exp(x) - 1).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [an_exponential_that_is_selected_away])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == "WN510"
