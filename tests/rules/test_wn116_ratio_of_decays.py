"""WN116 ratio-of-decays: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def ratio() -> object:
    product = torch.full((200,), 0.5).cumprod(0)
    return product[-1] / product


def prefix_sums() -> object:
    product = torch.cumprod(torch.full((200,), 0.5), dim=0)
    return product * torch.cumsum(torch.arange(1.0, 201.0) / product, 0)


def of_logarithms() -> object:
    total = torch.full((200,), -1.0).cumsum(0)
    return torch.ones(200) / total.exp()


def its_gradient() -> object:
    decay = torch.full((200,), 0.5, requires_grad=True)
    inverse = 1 / decay.cumprod(0)
    torch.where(inverse.isfinite(), inverse, 0.0).sum().backward()
    return decay.grad


def a_difference_of_logarithms() -> object:
    total = torch.full((200,), 0.5).log().cumsum(0)
    return (total[-1] - total).exp()


def a_short_product() -> object:
    product = torch.full((20,), 0.5).cumprod(0)
    return product[-1] / product


def a_factor_of_zero() -> object:
    beta = torch.tensor([0.5, 1.0, 0.5])
    return torch.ones(3) / (1 - beta).cumprod(0)


def factors_of_both_signs() -> object:
    return 1 / torch.tensor([-1.0, 0.0, 2.0]).cumprod(0)


def a_factor_whose_logarithm_is_infinite() -> object:
    total = torch.tensor([-1.0, -torch.inf]).cumsum(0)
    return torch.ones(2) / total.exp()


@pytest.mark.parametrize(
    "program",
    [
        ratio,
        prefix_sums,
        of_logarithms,
        its_gradient,
        a_factor_of_zero,
        factors_of_both_signs,
        a_factor_whose_logarithm_is_infinite,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN116"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_difference_of_logarithms, a_short_product])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def another_denominator() -> object:
    return torch.full((4,), 0.5).cumprod(0) / torch.zeros(4)


def a_sum() -> object:
    return 1 / torch.tensor([0.0, 1.0]).cumsum(0)


@pytest.mark.parametrize("program", [another_denominator, a_sum])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN116"
