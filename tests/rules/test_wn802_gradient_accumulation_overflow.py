"""WN802 gradient-accumulation-overflow: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn


def two_micro_batches() -> object:
    weight = nn.Parameter(torch.ones(1))
    for _ in range(2):
        (weight * 3e38).backward()
    return weight.grad


def two_uses_in_the_engine() -> object:
    weight = nn.Parameter(torch.zeros(1))
    shared = weight * 1
    (shared * 3e38 + shared * 3e38).sum().backward()
    return weight.grad


def scaled_down() -> object:
    weight = nn.Parameter(torch.ones(1))
    for _ in range(2):
        (weight * 3e38 / 2).backward()
    return weight.grad


@pytest.mark.parametrize("program", [two_micro_batches, two_uses_in_the_engine])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN802"
    assert said == snapshot


@pytest.mark.parametrize("program", [scaled_down])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
