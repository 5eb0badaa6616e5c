"""WN108 nan-of-the-forward: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

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


def a_missing_label_that_the_program_writes() -> object:
    labels = torch.tensor([1.0, float("nan")])
    guess = torch.zeros(2, requires_grad=True)
    ((guess - labels) ** 2).nansum().backward()
    return guess.grad


def a_missing_feature() -> object:
    rows = torch.tensor([[1.0, float("nan")], [1.0, 2.0]])
    weight = torch.ones(2, requires_grad=True)
    (rows @ weight)[1].backward()
    return weight.grad


@pytest.mark.parametrize("program", [a_missing_label, a_missing_label_that_the_program_writes, a_missing_feature])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN108"
    assert said == snapshot


def the_rows_taken_first() -> object:
    rows = torch.tensor([[1.0, float("nan")], [1.0, 2.0]])
    weight = torch.ones(2, requires_grad=True)
    (rows[1:] @ weight)[0].backward()
    return weight.grad


@pytest.mark.parametrize("program", [a_label_filled_in_before, the_rows_taken_first])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
