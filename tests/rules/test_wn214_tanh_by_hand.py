"""WN214 tanh-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_quotient() -> object:
    x = torch.tensor([100.0, 1.0])
    return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())


def of_twice_x() -> object:
    e = torch.exp(2 * torch.tensor([100.0, 1.0]))
    return (e - 1) / (e + 1)


def sinh_over_cosh() -> object:
    x = torch.tensor([100.0, 1.0])
    return x.sinh() / x.cosh()


def tanh() -> object:
    return torch.tanh(torch.tensor([100.0, 1.0]))


def its_gradient() -> object:
    x = torch.tensor([100.0, 1.0], requires_grad=True)
    ((x.exp() - (-x).exp()) / (x.exp() + (-x).exp())).nan_to_num(1.0).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_quotient, of_twice_x, sinh_over_cosh, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN214"
    assert said == snapshot


@pytest.mark.parametrize("program", [tanh])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
