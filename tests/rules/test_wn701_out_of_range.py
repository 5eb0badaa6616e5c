"""WN701 out-of-range: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

import whynan


def a_product_in_half() -> object:
    x = torch.full((2,), 300.0, dtype=torch.float16)
    return x * x


def a_sum() -> object:
    x = torch.full((2,), -3e38)
    return x + x


def a_power() -> object:
    return torch.full((2,), 1e20) ** 3


def a_matrix_product() -> object:
    return torch.full((2, 2), 1e30) @ torch.full((2, 2), 1e30)


def a_cast() -> object:
    return torch.full((2,), 1e6).half()


def a_sum_over_a_row() -> object:
    return torch.full((4,), 3e38).sum()


def a_running_sum() -> object:
    return torch.cumsum(torch.tensor([1.0, 3e38, 3e38, 3e38]), 0)


def a_batch_without_a_variance() -> object:
    return torch.nn.BatchNorm1d(1)(torch.full((4, 1), 3e38))


def residuals_that_grow() -> object:
    x = torch.full((2, 4), 10.0, dtype=torch.float16)
    for _ in range(20):
        x = x + x * 1.2
    return x


def a_product_in_bfloat16() -> object:
    x = torch.full((2,), 300.0, dtype=torch.bfloat16)
    return x * x


def a_cast_that_just_does_not_fit() -> object:
    return torch.tensor([3.4e38]).bfloat16()


@pytest.mark.parametrize(
    "program",
    [
        a_product_in_half,
        a_sum,
        a_power,
        a_matrix_product,
        a_cast,
        a_sum_over_a_row,
        a_running_sum,
        residuals_that_grow,
        a_cast_that_just_does_not_fit,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN701"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_product_in_bfloat16])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_every_result_of_a_batch_norm_that_overflows_is_explained(saying: Callable[..., list[str]]) -> None:
    said = saying(a_batch_without_a_variance, "WN701")
    assert any("is NaN: the sums behind its mean and its variance exceed" in message for message in said), said


def test_values_that_did_not_grow_are_not_said_to_have() -> None:
    def program() -> object:
        x = torch.tensor([6e4, 2.0], dtype=torch.float16)
        return (x / 2 + x / 2).sum() * x

    (finding,) = whynan.explain(program).findings
    assert finding.rule == "WN701"
    assert "earlier" not in finding.explanation
