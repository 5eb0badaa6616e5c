"""WN108 nan-of-the-forward: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

SEEN = torch.tensor([[True, True], [False, False]])


LABELS = torch.tensor([1.0, float("nan")])


def a_label_filled_in_before() -> object:
    guess = torch.zeros(2, requires_grad=True)
    error = (guess - LABELS.nan_to_num(0.0)) ** 2
    torch.where(LABELS.isnan(), 0.0, error).mean().backward()
    return guess.grad


def a_missing_label() -> object:
    guess = torch.zeros(2, requires_grad=True)
    ((guess - LABELS) ** 2).nansum().backward()
    return guess.grad


def a_row_of_padding() -> object:
    scores = torch.zeros(2, 2, requires_grad=True)
    weights = torch.softmax(scores + torch.where(SEEN, 0.0, float("-inf")), -1)
    weights.nansum().backward()
    return scores.grad


@pytest.mark.parametrize("program", [a_missing_label, a_row_of_padding])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN108"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_label_filled_in_before])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
