"""WN501 softmax-all-masked: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_row_of_padding() -> object:
    scores = torch.zeros(2, 3).masked_fill(torch.tensor([[True] * 3, [False] * 3]), float("-inf"))
    return scores.softmax(-1)


def one_place_left() -> object:
    scores = torch.zeros(2, 3).masked_fill(torch.tensor([[True, True, False]] * 2), float("-inf"))
    return scores.softmax(-1)


@pytest.mark.parametrize("program", [a_row_of_padding])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN501"
    assert said == snapshot


@pytest.mark.parametrize("program", [one_place_left])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
