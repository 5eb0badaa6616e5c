"""WN202 log-of-negative: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_difference() -> object:
    a = torch.tensor([1.0, 3.0])
    return torch.log(a - 2)


def one_plus_x() -> object:
    return torch.log1p(torch.tensor([-2.0]))


def a_positive_number() -> object:
    return torch.log(torch.tensor([1.0, 3.0]))


@pytest.mark.parametrize("program", [a_difference, one_plus_x])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN202"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_positive_number])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
