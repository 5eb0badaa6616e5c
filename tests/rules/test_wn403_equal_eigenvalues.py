"""WN403 equal-eigenvalues: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def eigenvectors_of_the_identity() -> object:
    matrix = torch.eye(2).requires_grad_()
    torch.linalg.eigh(matrix).eigenvectors[0, 0].backward()
    return matrix.grad


def singular_vectors() -> object:
    matrix = torch.eye(2).requires_grad_()
    torch.linalg.svd(matrix).U.sum().backward()
    return matrix.grad


def eigenvalues_alone() -> object:
    matrix = torch.eye(2).requires_grad_()
    torch.linalg.eigvalsh(matrix).sum().backward()
    return matrix.grad


@pytest.mark.parametrize("program", [eigenvectors_of_the_identity, singular_vectors])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN403"
    assert said == snapshot


@pytest.mark.parametrize("program", [eigenvalues_alone])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
