"""WN601 mean-of-nothing: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def an_empty_selection() -> object:
    x = torch.ones(4)
    return x[x > 2].mean()


def a_deviation_of_one() -> object:
    return torch.ones(1, 3).std(0)


def a_selection() -> object:
    x = torch.ones(4)
    return x[x > 0].mean()


def a_biased_deviation() -> object:
    return torch.ones(1, 3).std(0, unbiased=False)


@pytest.mark.parametrize("program", [an_empty_selection, a_deviation_of_one])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN601"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_selection, a_biased_deviation])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
