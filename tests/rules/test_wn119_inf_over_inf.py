"""WN119 inf-over-inf: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_share_of_a_sum() -> object:
    weights = torch.tensor([torch.inf, 1.0])
    return weights / weights.sum()


def a_norm() -> object:
    rows = torch.tensor([[torch.inf, 1.0], [1.0, 2.0]])
    return torch.nn.functional.normalize(rows)


def a_range() -> object:
    x = torch.tensor([torch.inf, 1.0])
    return (x - x.min()) / (x.max() - x.min())


def clamped_before() -> object:
    weights = torch.tensor([torch.inf, 1.0]).clamp(max=1e6)
    return weights / weights.sum()


@pytest.mark.parametrize("program", [a_share_of_a_sum, a_norm, a_range])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN119"
    assert said == snapshot


@pytest.mark.parametrize("program", [clamped_before])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_infinities_of_exponentials_are_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    assert first(lambda: torch.tensor([100.0]).exp() / torch.tensor([100.0]).exp().sum())["rule"] == "WN203"
