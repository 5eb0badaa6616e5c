"""WN503 softmax-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

import whynan


def a_quotient() -> object:
    x = torch.tensor([[100.0, 1.0]])
    return x.exp() / x.exp().sum(-1, keepdim=True)


def in_place() -> object:
    e = torch.exp(torch.tensor([[100.0, 1.0]]))
    e /= e.sum(-1, keepdim=True)
    return e


def a_product_with_ones() -> object:
    e = torch.exp(torch.tensor([[100.0, 1.0]]))
    return e * (e @ torch.ones(2, 1)).reciprocal()


def softmax() -> object:
    return torch.tensor([[100.0, 1.0]]).softmax(-1)


def its_gradient() -> object:
    x = torch.tensor([100.0, 1.0], requires_grad=True)
    (x.exp() / x.exp().sum()).nan_to_num(1.0).sum().backward()
    return x.grad


def exponentials_that_are_all_zero() -> object:
    x = torch.tensor([-200.0, -300.0])
    return x.exp() / x.exp().sum()


@pytest.mark.parametrize(
    "program", [a_quotient, in_place, a_product_with_ones, its_gradient, exponentials_that_are_all_zero]
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN503"
    assert said == snapshot


def a_sum_of_finite_exponentials() -> object:
    x = torch.full((1, 8), 88.0)
    return x.exp() / x.exp().sum(-1, keepdim=True)


def a_sum_in_half_precision() -> object:
    exponentials = torch.exp(torch.full((800,), 8.0, dtype=torch.float16))
    total = exponentials.sum()
    return exponentials / total


@pytest.mark.parametrize("program", [a_sum_of_finite_exponentials, a_sum_in_half_precision])
def test_a_sum_that_overflows_makes_finite_numbers_wrong(program: Any, snapshot: SnapshotAssertion) -> None:
    report = whynan.explain(program)
    assert report.verdict == "damaged"
    finding = report.damaging[0]
    assert finding.rule == "WN503"
    assert f"{finding.message}\n{finding.explanation}" == snapshot


@pytest.mark.parametrize("program", [softmax])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_a_quotient_of_other_exponentials_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    def program() -> object:
        x = torch.tensor([[100.0, 1.0]])
        return x.exp() / x.mul(2).sum(-1, keepdim=True)

    assert first(program)["rule"] == "WN203"


def of_infinities() -> object:
    x = torch.full((2,), -torch.inf)
    return x.exp() / x.exp().sum()


@pytest.mark.parametrize(("program", "rule"), [(of_infinities, "WN101")])
def test_what_only_looks_like_it_has_its_own_rule(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
