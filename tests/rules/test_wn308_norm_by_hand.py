"""WN308 norm-by-hand: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_distance() -> object:
    a = torch.ones(3, requires_grad=True)
    (a - torch.ones(3)).pow(2).sum().sqrt().backward()
    return a.grad


def of_rows() -> object:
    x = torch.zeros(2, 3, requires_grad=True)
    squares = x * x
    lengths = squares.sum(-1).pow(0.5)
    lengths.sum().backward()
    return x.grad


def a_dot_product() -> object:
    x = torch.zeros(3, requires_grad=True)
    torch.dot(x, x).sqrt().backward()
    return x.grad


def vector_norm() -> object:
    x = torch.zeros(3, requires_grad=True)
    torch.linalg.vector_norm(x).backward()
    return x.grad


@pytest.mark.parametrize("program", [a_distance, of_rows, a_dot_product])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN308"
    assert said == snapshot


@pytest.mark.parametrize("program", [vector_norm])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_a_sum_of_other_powers_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    def program() -> object:
        x = torch.zeros(3, requires_grad=True)
        x.sum().sqrt().backward()
        return x.grad

    assert first(program)["rule"] == "WN301"
