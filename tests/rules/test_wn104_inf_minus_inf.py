"""WN104 inf-minus-inf: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def two_masks() -> object:
    mask = torch.full((2,), float("-inf"))
    return (mask - mask).sum()


def a_sum_of_both_signs() -> object:
    return torch.tensor([float("inf"), float("-inf")]).sum()


def a_norm_of_a_row_with_inf() -> object:
    x = torch.tensor([[1.0, float("inf")]])
    return torch.nn.functional.layer_norm(x, (2,))


def a_softmax_of_a_row_with_inf() -> object:
    return torch.tensor([[float("inf"), 0.0]]).softmax(-1)


def a_scaled_sum() -> object:
    return torch.tensor([float("inf")]).add(torch.tensor([float("inf")]), alpha=-0.5)


def a_channel_with_inf() -> object:
    x = torch.tensor([[float("inf"), 1.0], [2.0, 3.0]])
    return torch.nn.functional.batch_norm(x, None, None, training=True)


def one_mask() -> object:
    mask = torch.full((2,), float("-inf"))
    return (mask - torch.zeros(2)).softmax(0)[:0]


@pytest.mark.parametrize(
    "program", [two_masks, a_sum_of_both_signs, a_norm_of_a_row_with_inf, a_softmax_of_a_row_with_inf]
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN104"
    assert said == snapshot


@pytest.mark.parametrize("program", [one_mask])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
