"""WN215 log-of-cosh: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def a_function() -> object:
    return torch.log(torch.cosh(torch.tensor([100.0, 1.0])))


def written_out() -> object:
    x = torch.tensor([100.0, 1.0])
    return torch.log((x.exp() + (-x).exp()) / 2)


def stable() -> object:
    x = torch.tensor([100.0, 1.0]).abs()
    return x + F.softplus(-2 * x) - 0.6931471805599453


@pytest.mark.parametrize("program", [a_function, written_out])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN215"
    assert said == snapshot


@pytest.mark.parametrize("program", [stable])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
