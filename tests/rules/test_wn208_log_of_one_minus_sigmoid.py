"""WN208 log-of-one-minus-sigmoid: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def a_function() -> object:
    return torch.log(1 - torch.sigmoid(torch.tensor([20.0, 1.0])))


def log1p() -> object:
    p = torch.tensor([20.0, 1.0]).sigmoid()
    return torch.log1p(-p)


def its_gradient() -> object:
    x = torch.tensor([20.0, 1.0], requires_grad=True)
    p = torch.sigmoid(x)
    torch.where(p < 1, torch.log(1 - p), 0.0).sum().backward()
    return x.grad


def logsigmoid() -> object:
    return F.logsigmoid(-torch.tensor([20.0, 1.0]))


@pytest.mark.parametrize("program", [a_function, log1p, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN208"
    assert said == snapshot


@pytest.mark.parametrize("program", [logsigmoid])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_one_minus_something_else_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    assert first(lambda: torch.log(1 - torch.tensor([1.0, 0.5])))["rule"] == "WN201"
