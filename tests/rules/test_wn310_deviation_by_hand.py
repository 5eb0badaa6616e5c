"""WN310 deviation-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_variance() -> object:
    x = torch.ones(2, 4, requires_grad=True)
    x.var(-1).sqrt().sum().backward()
    return x.grad


def written_out() -> object:
    x = torch.ones(2, 4, requires_grad=True)
    centred = x - x.mean(-1, keepdim=True)
    spread = torch.sqrt((centred**2).mean(-1))
    spread.sum().backward()
    return x.grad


def std() -> object:
    x = torch.ones(2, 4, requires_grad=True)
    x.std(-1).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_variance, written_out])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN310"
    assert said == snapshot


@pytest.mark.parametrize("program", [std])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
