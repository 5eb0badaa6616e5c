"""WN212 log-of-sum-of-exp: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_method() -> object:
    return torch.tensor([[100.0, 1.0]]).exp().sum(-1).log()


def a_product_with_ones() -> object:
    return torch.log(torch.exp(torch.tensor([[100.0, 1.0]])) @ torch.ones(2))


def a_mean() -> object:
    return torch.tensor([[100.0, 1.0]]).exp().mean(-1).log()


def logsumexp() -> object:
    return torch.tensor([[100.0, 1.0]]).logsumexp(-1)


def its_gradient() -> object:
    x = torch.tensor([100.0, 1.0], requires_grad=True)
    x.exp().sum().log().clamp_max(80.0).backward()
    return x.grad


def exponentials_that_are_all_zero() -> object:
    return torch.log(torch.sum(torch.exp(torch.tensor([-200.0, -300.0]))))


def a_running_sum() -> object:
    return torch.log(torch.cumsum(torch.exp(torch.tensor([100.0, 1.0])), 0))


def a_sum_of_finite_exponentials() -> object:
    return torch.full((1, 8), 88.0).exp().sum(-1).log()


def a_sum_in_half_precision() -> object:
    exponentials = torch.exp(torch.full((800,), 8.0, dtype=torch.float16))
    total = exponentials.sum()
    return total.log()


def a_running_sum_of_finite_exponentials() -> object:
    return torch.log(torch.cumsum(torch.exp(torch.full((8,), 88.0)), 0))


@pytest.mark.parametrize(
    "program",
    [
        a_method, a_product_with_ones, a_mean, its_gradient, exponentials_that_are_all_zero, a_running_sum,
        a_sum_of_finite_exponentials, a_sum_in_half_precision, a_running_sum_of_finite_exponentials,
    ],
)  # fmt: skip
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN212"
    assert said == snapshot


def of_as_many() -> object:
    return torch.full((1, 8), 88.0).logsumexp(-1)


@pytest.mark.parametrize("program", [logsumexp, of_as_many])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_a_sum_of_exponentials_without_a_logarithm_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    assert first(lambda: torch.tensor([[100.0, 1.0]]).exp().sum(-1))["rule"] == "WN203"
    assert first(lambda: torch.full((1, 8), 88.0).exp().sum(-1))["rule"] == "WN701"
    assert first(lambda: torch.full((1, 8), 1e38).sum(-1).log())["rule"] == "WN701"


def of_infinities() -> object:
    return torch.full((2,), -torch.inf).exp().sum().log()


@pytest.mark.parametrize(("program", "rule"), [(of_infinities, "WN201")])
def test_what_only_looks_like_it_has_its_own_rule(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
