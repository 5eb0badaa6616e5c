"""WN201 log-of-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn


def a_probability() -> object:
    p = torch.tensor([0.0, 1.0])
    return p.log()


def one_plus_x() -> object:
    return torch.log1p(torch.tensor([-1.0, 1.0]))


def a_logit() -> object:
    return torch.logit(torch.tensor([1.0, 0.5]))


def a_saturated_sigmoid() -> object:
    p = torch.sigmoid(torch.tensor([20.0, 1.0]))
    return torch.log(1 - p)


def its_gradient() -> object:
    p = torch.sigmoid(torch.tensor([20.0, 1.0])).requires_grad_()
    torch.where(p < 1, torch.log(1 - p), 0.0).sum().backward()
    return p.grad


def a_difference_that_only_begins_with_one() -> object:
    a, b = torch.tensor([2.0]), torch.tensor([1.0])
    return torch.log(1 - a + b)


def a_log_of_sigmoid() -> object:
    return nn.functional.logsigmoid(-torch.tensor([20.0, 1.0]))


def a_log_of_softmax() -> object:
    return torch.tensor([-200.0, 200.0]).log_softmax(0)


@pytest.mark.parametrize(
    "program",
    [a_probability, one_plus_x, a_logit, a_saturated_sigmoid, its_gradient, a_difference_that_only_begins_with_one],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN201"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_log_of_softmax, a_log_of_sigmoid])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
