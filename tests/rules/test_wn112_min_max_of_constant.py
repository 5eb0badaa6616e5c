"""WN112 min-max-of-constant: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def over_all() -> object:
    x = torch.full((2, 3), 0.5)
    return (x - x.min()) / (x.max() - x.min())


def over_rows() -> object:
    x = torch.full((2, 3), 0.5)
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return torch.div(x - low, high - low)


def clamped() -> object:
    x = torch.full((2, 3), 0.5)
    return (x - x.min()) / (x.max() - x.min()).clamp_min(1e-6)


def its_gradient() -> object:
    x = torch.full((3,), 0.5, requires_grad=True)
    ((x - x.min()) / (x.max() - x.min())).nan_to_num(0.0).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [over_all, over_rows, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN112"
    assert said == snapshot


@pytest.mark.parametrize("program", [clamped])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
