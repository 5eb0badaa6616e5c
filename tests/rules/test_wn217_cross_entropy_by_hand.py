"""WN217 cross-entropy-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def p_is_one() -> object:
    p, y = torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0])
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def p_is_zero() -> object:
    p, y = torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.0])
    positive = y * torch.log(p)
    negative = (1 - y) * torch.log1p(-p)
    return -(positive + negative)


def binary_cross_entropy() -> object:
    return F.binary_cross_entropy(torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0]))


def its_gradient() -> object:
    p, y = torch.tensor([1.0, 0.5], requires_grad=True), torch.tensor([1.0, 0.0])
    loss = -(y * p.log() + (1 - y) * (1 - p).log())
    torch.where(p < 1, loss, 0.0).sum().backward()
    return p.grad


def of_smoothed_labels() -> object:
    p, y = torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0]) * 0.9 + 0.05
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def weighted() -> object:
    p, y = torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.0])
    return -(0.25 * y * (1 - p) ** 2 * p.log() + 0.75 * (1 - y) * p**2 * (1 - p).log()).mean()


@pytest.mark.parametrize("program", [p_is_one, p_is_zero, its_gradient, of_smoothed_labels, weighted])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN217"
    assert said == snapshot


@pytest.mark.parametrize("program", [binary_cross_entropy])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def a_logit() -> object:
    p = torch.tensor([0.0, 0.5])
    return torch.log(p) - torch.log(1 - p)


def a_sum_of_logarithms() -> object:
    p = torch.tensor([0.0, 0.5])
    return (torch.log(p) + torch.log(1 - p)).mean()


@pytest.mark.parametrize(("program", "rule"), [(a_logit, "WN201"), (a_sum_of_logarithms, "WN201")])
def test_what_only_looks_like_it_has_its_own_rule(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
