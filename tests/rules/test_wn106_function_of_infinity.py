"""WN106 function-of-infinity: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_position() -> object:
    return torch.sin(torch.tensor([float("inf"), 1.0]))


def a_gate() -> object:
    return torch.nn.functional.silu(torch.tensor([float("-inf"), 1.0]))


def a_logit() -> object:
    logits = torch.tensor([float("inf"), 1.0])
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor([1.0, 1.0]))


def a_large_position() -> object:
    return torch.sin(torch.tensor([3e38, 1.0]))


@pytest.mark.parametrize("program", [a_position, a_gate, a_logit])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN106"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_large_position])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
