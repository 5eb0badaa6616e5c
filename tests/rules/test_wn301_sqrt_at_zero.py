"""WN301 sqrt-at-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_zero() -> object:
    x = torch.zeros(2, 3, requires_grad=True)
    x.sum(1).sqrt().sum().backward()
    return x.grad


def a_norm() -> object:
    x = torch.ones(2, 3, requires_grad=True)
    (x - x.detach()).norm(dim=1).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_zero])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN301"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_norm])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
