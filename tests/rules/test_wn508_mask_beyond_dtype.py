"""WN508 mask-beyond-dtype: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def times_a_number() -> object:
    scores, hide = torch.zeros(1, 2).half(), torch.ones(1, 2).half()
    return (scores + hide * -1e9).softmax(-1)


def less_one() -> object:
    scores, keep = torch.zeros(1, 2).half(), torch.tensor([[1.0, 0.0]]).half()
    return scores + (keep - 1) * 1e9


def cast() -> object:
    mask = torch.tensor([[0.0, 1.0]]) * -1e9
    return torch.zeros(1, 2).half() + mask.half()


def where_nothing_is_hidden() -> object:
    hide = torch.tensor([[0.0, 1.0]])
    return (torch.zeros(1, 2) + hide * -1e39).softmax(-1)


def what_fits() -> object:
    scores, hide = torch.zeros(1, 2).half(), torch.ones(1, 2).half()
    return (scores + hide * torch.finfo(scores.dtype).min).softmax(-1)


def in_float32() -> object:
    return (torch.zeros(1, 2) + torch.ones(1, 2) * -1e9).softmax(-1)


@pytest.mark.parametrize("program", [times_a_number, less_one, cast, where_nothing_is_hidden])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN508"
    assert said == snapshot


@pytest.mark.parametrize("program", [what_fits, in_float32])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def a_product_of_data() -> object:
    return torch.zeros(2).half() + torch.tensor([300.0, 1.0]).half() * -300


def a_cast_of_data() -> object:
    return torch.zeros(2).half() + torch.tensor([-1e9, 5.0]).half()


@pytest.mark.parametrize("program", [a_product_of_data, a_cast_of_data])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN508"
