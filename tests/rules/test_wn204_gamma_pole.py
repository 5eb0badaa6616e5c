"""WN204 gamma-pole: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_concentration_of_zero() -> object:
    return torch.lgamma(torch.tensor([0.0, 1.0]))


def its_derivative() -> object:
    return torch.digamma(torch.tensor([-2.0, 1.0]))


def a_positive_concentration() -> object:
    return torch.lgamma(torch.nn.functional.softplus(torch.tensor([0.0, 1.0])) + 1e-4)


@pytest.mark.parametrize("program", [a_concentration_of_zero, its_derivative])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN204"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_positive_concentration])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
