"""WN203 exp-overflow: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_log_variance() -> object:
    log_variance = torch.tensor([100.0, 0.0])
    return log_variance.exp()


def minus_one() -> object:
    return torch.expm1(torch.tensor([100.0]))


def a_power_of_two() -> object:
    return 2 ** torch.tensor([150.0, 1.0])


def within_range() -> object:
    return torch.tensor([80.0, 0.0]).exp()


def by_logarithms() -> object:
    return torch.tensor([100.0, 0.0]).logsumexp(0)


@pytest.mark.parametrize("program", [a_log_variance, minus_one, a_power_of_two])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN203"
    assert said == snapshot


@pytest.mark.parametrize("program", [within_range, by_logarithms])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def the_power_of_a_tensor() -> object:
    return torch.tensor([1e30, 1.0]) ** 2


@pytest.mark.parametrize("program", [the_power_of_a_tensor])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == "WN701"
