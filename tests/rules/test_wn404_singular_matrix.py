"""WN404 singular-matrix: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_determinant_of_zero() -> object:
    return torch.logdet(torch.ones(2, 2))


def an_unchecked_inverse() -> object:
    return torch.linalg.inv_ex(torch.ones(2, 2)).inverse


def a_triangular_system() -> object:
    system = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return torch.linalg.solve_triangular(system, torch.ones(2, 1), upper=False)


def a_regularised_determinant() -> object:
    return torch.logdet(torch.ones(2, 2) + 1e-3 * torch.eye(2))


@pytest.mark.parametrize("program", [a_determinant_of_zero, an_unchecked_inverse, a_triangular_system])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN404"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_regularised_determinant])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
