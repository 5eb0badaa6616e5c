"""WN504 entropy-of-masked-logits: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

inf = float("inf")


def softmax_and_log_softmax() -> object:
    logits = torch.tensor([[1.0, -inf]])
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)


def the_exponential() -> object:
    logits = torch.zeros(1, 3).masked_fill(torch.tensor([[False, False, True]]), -inf)
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    return torch.sum(-p * log_p)


def normalised_by_hand() -> object:
    logits = torch.tensor([[1.0, -inf]])
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    return -(log_p * torch.exp(log_p)).sum(-1)


def in_one_product() -> object:
    logits = torch.tensor([1.0, -inf])
    return -torch.dot(logits.softmax(-1), logits.log_softmax(-1))


def its_gradient() -> object:
    logits = torch.zeros(1, 2, requires_grad=True)
    mask = torch.tensor([[False, True]])
    log_p = logits.masked_fill(mask, -inf).log_softmax(-1)
    torch.where(mask, 0.0, log_p.exp() * log_p).sum().backward()
    return logits.grad


def the_gradient_of_the_probabilities() -> object:
    logits = torch.zeros(1, 3, requires_grad=True)
    masked = logits.masked_fill(torch.tensor([[False, True, False]]), -inf)
    (masked.softmax(-1) * masked.log_softmax(-1)).sum().backward()
    return logits.grad


def masked_with_the_smallest_number() -> object:
    logits = torch.zeros(1, 3)
    logits = logits.masked_fill(torch.tensor([[False, False, True]]), torch.finfo(logits.dtype).min)
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def the_logarithm_of_a_softmax() -> object:
    logits = torch.tensor([[1.0, 2.0, 3.0]]).masked_fill(torch.tensor([[False, True, False]]), -inf)
    p = logits.softmax(-1)
    return -(p * torch.log(p)).sum(-1)


@pytest.mark.parametrize(
    "program",
    [
        softmax_and_log_softmax,
        the_exponential,
        normalised_by_hand,
        in_one_product,
        its_gradient,
        the_logarithm_of_a_softmax,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN504"
    assert said == snapshot


@pytest.mark.parametrize("program", [masked_with_the_smallest_number])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def other_probabilities() -> object:
    logits = torch.tensor([[1.0, -inf]])
    return (torch.tensor([[1.0, 0.0]]) * logits.log_softmax(-1)).sum(-1)


def of_other_logits() -> object:
    logits = torch.tensor([[1.0, -inf]])
    return -(torch.tensor([[200.0, 0.0]]).softmax(-1) * logits.log_softmax(-1)).sum(-1)


@pytest.mark.parametrize("program", [other_probabilities, of_other_logits])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN504"


def test_forward_and_derivative_are_told_once(saying: Callable[..., list[str]]) -> None:
    assert len(saying(the_gradient_of_the_probabilities, "WN504")) == 1


def an_infinite_weight() -> object:
    logits = torch.zeros(1, 3, requires_grad=True)
    p = logits.masked_fill(torch.tensor([[False, True, False]]), -inf).softmax(-1)
    (p * torch.tensor([[1.0, inf, 1.0]])).nansum().backward()
    return logits.grad


def test_another_infinity_that_meets_the_probabilities_is_none(saying: Callable[..., list[str]]) -> None:
    assert saying(an_infinite_weight, "WN504") == []


def of_a_probability_that_underflows() -> object:
    p = torch.tensor([[200.0, 0.0, -inf]]).softmax(-1)[:, :2]
    return -(p * torch.log(p)).sum(-1)


@pytest.mark.parametrize(("program", "rule"), [(of_a_probability_that_underflows, "WN206")])
def test_what_only_looks_like_it_has_its_own_rule(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
