"""WN702 scale-after-product: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def divided() -> object:
    q = torch.full((1, 2, 64), 40.0, dtype=torch.float16)
    return ((q @ q.transpose(1, 2)) / 8).softmax(-1)


def multiplied() -> object:
    q = torch.full((1, 2, 64), 40.0, dtype=torch.float16)
    scores = torch.einsum("bqd,bkd->bqk", q, q)
    scores = scores * 64**-0.5
    return torch.softmax(scores, dim=-1)


def of_different_values() -> object:
    q = torch.linspace(30.0, 50.0, 64).half().expand(2, 64)
    return (q @ q.T).div(8)


def scaled_before() -> object:
    q = torch.full((1, 2, 64), 40.0, dtype=torch.float16)
    return ((q / 8) @ q.transpose(1, 2)).softmax(-1)


def in_float32() -> object:
    q = torch.full((1, 2, 64), 40.0)
    return ((q @ q.transpose(1, 2)) / 8).softmax(-1)


@pytest.mark.parametrize("program", [divided, multiplied, of_different_values])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN702"
    assert said == snapshot


@pytest.mark.parametrize("program", [scaled_before, in_float32])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def not_scaled() -> object:
    q = torch.full((1, 2, 64), 40.0, dtype=torch.float16)
    return q @ q.transpose(1, 2)


def made_larger() -> object:
    q = torch.full((1, 2, 64), 40.0, dtype=torch.float16)
    return (q @ q.transpose(1, 2)) * 8


@pytest.mark.parametrize("program", [not_scaled, made_larger])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN702"
