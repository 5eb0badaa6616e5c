"""WN003 literal-in-sink: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_mask_in_the_loss() -> object:
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    mask = torch.tensor([0.0, float("-inf")])
    loss = (scores + mask).mean()
    loss.backward()
    return scores.grad


def a_mask_that_softmax_takes_away() -> object:
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    mask = torch.tensor([0.0, float("-inf")])
    loss = (scores + mask).softmax(0).square().sum()
    loss.backward()
    return scores.grad


@pytest.mark.parametrize("program", [a_mask_in_the_loss])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN003"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_mask_that_softmax_takes_away])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
