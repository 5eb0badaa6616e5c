"""WN502 logsumexp-all-masked: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_masked_row() -> object:
    scores = torch.zeros(2, 3, requires_grad=True)
    mask = torch.tensor([[True, True, True], [False, True, True]])
    (scores + torch.where(mask, float("-inf"), 0.0)).logsumexp(-1).clamp_min(-100).sum().backward()
    return scores.grad


def a_sum_of_two() -> object:
    x = torch.full((2,), float("-inf"), requires_grad=True)
    torch.logaddexp(x, x).clamp_min(-100).sum().backward()
    return x.grad


def a_finite_mask() -> object:
    scores = torch.zeros(2, 3, requires_grad=True)
    mask = torch.tensor([[True, True, True], [False, True, True]])
    (scores + torch.where(mask, -1e30, 0.0)).logsumexp(-1).clamp_min(-100).sum().backward()
    return scores.grad


@pytest.mark.parametrize("program", [a_masked_row, a_sum_of_two])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN502"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_finite_mask])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
