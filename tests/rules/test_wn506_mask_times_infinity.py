"""WN506 mask-times-infinity: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

inf = float("inf")


def one_minus_mask() -> object:
    keep = torch.tensor([1.0, 0.0])
    scores = torch.ones(2) + (1.0 - keep) * -inf
    return scores.softmax(-1)


def nothing_is_hidden() -> object:
    keep = torch.ones(2)
    return torch.ones(2) + (1 - keep) * -inf


def a_tensor() -> object:
    hide = torch.tensor([False, True])
    return torch.ones(2) + hide.float() * torch.tensor(-inf)


def of_booleans() -> object:
    hide = torch.tensor([False, True])
    return torch.ones(2) + hide * -inf


def of_infinities() -> object:
    causal = torch.triu(torch.ones(3, 3), diagonal=1)
    return torch.zeros(3, 3) + causal * torch.full((3, 3), -inf)


def filled() -> object:
    keep = torch.tensor([1.0, 0.0])
    return torch.ones(2).masked_fill(keep == 0, -inf).softmax(-1)


def times_a_finite_number() -> object:
    keep = torch.tensor([1.0, 0.0])
    return (torch.ones(2) + (1.0 - keep) * torch.finfo(torch.float32).min).softmax(-1)


@pytest.mark.parametrize("program", [one_minus_mask, nothing_is_hidden, a_tensor, of_booleans, of_infinities])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN506"
    assert said == snapshot


@pytest.mark.parametrize("program", [filled, times_a_finite_number])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def an_infinity_among_others() -> object:
    return torch.tensor([0.0, 1.0]) * torch.tensor([inf, 1.0])


def a_zero_that_is_no_mask() -> object:
    return torch.tensor([0.0]) * torch.tensor([inf])


def a_weight_that_is_no_mask() -> object:
    return torch.tensor([0.0, 3.0]) * -inf


@pytest.mark.parametrize("program", [an_infinity_among_others, a_zero_that_is_no_mask, a_weight_that_is_no_mask])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN506"
