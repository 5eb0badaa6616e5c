"""WN205 quantile-at-limit: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_probability_of_one() -> object:
    return torch.erfinv(torch.tensor([1.0, 0.5]))


def beyond_the_end() -> object:
    return torch.special.ndtri(torch.tensor([1.5, 0.5]))


def a_clamped_probability() -> object:
    return torch.erfinv(torch.tensor([1.0, 0.5]).clamp(-1 + 1e-6, 1 - 1e-6))


@pytest.mark.parametrize("program", [a_probability_of_one, beyond_the_end])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN205"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_clamped_probability])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
