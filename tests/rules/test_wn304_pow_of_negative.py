"""WN304 pow-of-negative: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_fractional_power() -> object:
    return torch.tensor([-2.0, 2.0]) ** 0.5001


def a_whole_power() -> object:
    return torch.tensor([-2.0, 2.0]) ** 3


@pytest.mark.parametrize("program", [a_fractional_power])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN304"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_whole_power])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
