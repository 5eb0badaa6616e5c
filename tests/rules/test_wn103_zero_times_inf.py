"""WN103 zero-times-inf: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_mask_by_multiplication() -> object:
    scores = torch.tensor([float("inf"), 1.0])
    return (scores * torch.tensor([0.0, 1.0])).sum()


def a_mask_by_where() -> object:
    scores = torch.tensor([float("inf"), 1.0])
    return torch.where(torch.tensor([False, True]), scores, 0.0).sum()


@pytest.mark.parametrize("program", [a_mask_by_multiplication])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN103"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_mask_by_where])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
