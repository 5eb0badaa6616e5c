"""WN105 inf-in-product-sum: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_weight_of_zero() -> object:
    return torch.tensor([[0.0, 1.0]]) @ torch.tensor([[float("inf")], [1.0]])


def a_convolution() -> object:
    signal = torch.tensor([[[1.0, float("inf"), 1.0]]])
    return torch.nn.functional.conv1d(signal, torch.tensor([[[1.0, 0.0]]]))


def both_signs() -> object:
    return torch.dot(torch.tensor([float("inf"), float("-inf")]), torch.tensor([1.0, 1.0]))


def a_place_filled_before() -> object:
    values = torch.tensor([[float("inf")], [1.0]])
    return torch.tensor([[0.0, 1.0]]) @ values.masked_fill(torch.tensor([[True], [False]]), 0.0)


@pytest.mark.parametrize("program", [a_weight_of_zero, a_convolution, both_signs])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN105"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_place_filled_before])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
