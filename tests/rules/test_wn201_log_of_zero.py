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


def a_saturated_probability() -> object:
    p = torch.tensor([1.0, 0.5])
    return torch.log(1 - p)


def its_gradient() -> object:
    p = torch.tensor([1.0, 0.5]).requires_grad_()
    torch.log(1 - p).sum().exp().backward()
    return p.grad


def a_difference_that_only_begins_with_one() -> object:
    a, b = torch.tensor([2.0]), torch.tensor([1.0])
    return torch.log(1 - a + b)


def a_log_of_sigmoid() -> object:
    return nn.functional.logsigmoid(-torch.tensor([20.0, 1.0]))


def a_log_of_softmax() -> object:
    return torch.tensor([-200.0, 200.0]).log_softmax(0)


def a_logit_written_out() -> object:
    p = torch.tensor([0.0, 0.5])
    return torch.log(p) - torch.log(1 - p)


def logistic_noise() -> object:
    u = torch.tensor([0.0, 0.5])
    return torch.tensor([0.3, 0.5]).log() + torch.log(u) - torch.log(1 - u)


def a_masked_probability() -> object:
    logits = torch.tensor([[1.0, 2.0]]).masked_fill(torch.tensor([[False, True]]), -torch.inf)
    return logits.softmax(-1).log()


@pytest.mark.parametrize(
    "program",
    [
        a_probability,
        one_plus_x,
        a_logit,
        a_saturated_probability,
        a_difference_that_only_begins_with_one,
        its_gradient,
        a_logit_written_out,
        logistic_noise,
        a_masked_probability,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN201"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_log_of_softmax, a_log_of_sigmoid])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
