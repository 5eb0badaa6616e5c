"""WN507 two-masks-added: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

inf = float("inf")


def before_the_scores() -> object:
    low = torch.finfo(torch.float32).min
    causal = torch.tensor([[0.0, low], [0.0, 0.0]])
    padding = torch.tensor([[low, low], [0.0, low]])
    other = torch.tensor([[low, 0.0], [0.0, 0.0]])
    return (torch.zeros(2, 2) + (causal + padding + other)).softmax(-1)


def one_after_the_other() -> object:
    scores = torch.zeros(1, 2)
    mask = torch.full((1, 2), torch.finfo(scores.dtype).min)
    scores = scores + mask
    scores = scores + mask
    return torch.softmax(scores, dim=-1)


def in_float16() -> object:
    low = torch.finfo(torch.float16).min
    mask = torch.full((1, 2), low, dtype=torch.float16)
    return (torch.zeros(1, 2).half() + (mask + mask)).log_softmax(-1)


def joined_as_booleans() -> object:
    causal = torch.ones(2, 2).triu(1).bool()
    padding = torch.tensor([[True, True], [False, True]])
    return torch.zeros(2, 2).masked_fill(causal | padding, torch.finfo(torch.float32).min).softmax(-1)


def a_place_is_left() -> object:
    low = torch.finfo(torch.float32).min
    mask = torch.tensor([[0.0, low]])
    return (torch.zeros(1, 2) + (mask + mask)).softmax(-1)


def in_a_product_with_the_scores() -> object:
    low = torch.finfo(torch.float32).min
    scores = torch.zeros(3, 3)
    scores = scores + torch.triu(torch.full((3, 3), low), 1) + torch.tensor([low, low, low])
    weights = scores.softmax(-1)
    return (weights * scores).sum()


@pytest.mark.parametrize("program", [before_the_scores, one_after_the_other, in_float16, in_a_product_with_the_scores])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN507"
    assert said == snapshot


@pytest.mark.parametrize("program", [joined_as_booleans, a_place_is_left])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def masked_with_infinities() -> object:
    mask = torch.full((1, 2), -inf)
    return (torch.zeros(1, 2) + (mask + mask)).softmax(-1)


def one_mask_and_infinities() -> object:
    mask = torch.full((1, 2), torch.finfo(torch.float32).min)
    return (torch.zeros(1, 2) + mask).masked_fill(mask < 0, -inf).softmax(-1)


@pytest.mark.parametrize("program", [masked_with_infinities, one_mask_and_infinities])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN507"
