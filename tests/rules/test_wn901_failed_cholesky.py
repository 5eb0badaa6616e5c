"""WN901 failed-cholesky: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from whynan import Report

EQUAL_ROWS = ((1.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 1.0))
OBSERVED = torch.ones(2, 1)
INDEFINITE = ((1.0, 2.0), (2.0, 1.0))


def a_log_determinant() -> object:
    factor, _ = torch.linalg.cholesky_ex(torch.tensor(EQUAL_ROWS))
    return 2 * factor.diagonal().log().sum()


def of_a_batch() -> object:
    factor, _ = torch.linalg.cholesky_ex(torch.stack([torch.eye(2), torch.tensor(INDEFINITE)]))
    scale = factor.diagonal(dim1=-2, dim2=-1)
    return scale.contiguous().sqrt().sum()


def a_quotient() -> object:
    factor, _ = torch.linalg.cholesky_ex(torch.tensor(EQUAL_ROWS))
    return (torch.ones(3) / torch.diagonal(factor)).sum()


def a_solved_system() -> object:
    factor, _ = torch.linalg.cholesky_ex(torch.tensor(EQUAL_ROWS))
    return torch.cholesky_solve(torch.ones(3, 1), factor).sum()


def a_triangular_system() -> object:
    factor, _ = torch.linalg.cholesky_ex(torch.tensor(EQUAL_ROWS))
    return torch.linalg.solve_triangular(factor, torch.ones(3, 1), upper=False).sum()


def a_likelihood() -> object:
    points = torch.tensor([0.3, 0.3])
    factor, _ = torch.linalg.cholesky_ex(4 * (-(points - points[:, None]).square()).exp())
    solved = torch.cholesky_solve(OBSERVED, factor)
    return 0.5 * (OBSERVED * solved).sum() + factor.diagonal().log().sum()


def its_derivative() -> object:
    matrix = torch.tensor(EQUAL_ROWS, requires_grad=True)
    factor, _ = torch.linalg.cholesky_ex(matrix)
    factor.diagonal().clamp_min(0).sqrt().sum().backward()
    return matrix.grad


def a_definite_matrix() -> object:
    factor, _ = torch.linalg.cholesky_ex(torch.tensor(EQUAL_ROWS) + torch.eye(3))
    return 2 * factor.diagonal().log().sum()


def a_solution_with_a_definite_matrix() -> object:
    factor, _ = torch.linalg.cholesky_ex(torch.tensor(EQUAL_ROWS) + torch.eye(3))
    return torch.cholesky_solve(torch.ones(3, 1), factor).sum()


def the_zeros_above_a_diagonal() -> object:
    factor, _ = torch.linalg.cholesky_ex(torch.eye(2))
    return factor.log()


SOLVED = [a_solved_system, a_triangular_system, a_likelihood]


@pytest.mark.parametrize("program", [a_log_determinant, of_a_batch, a_quotient, *SOLVED, its_derivative])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN901"
    assert said == snapshot


@pytest.mark.parametrize("program", [the_zeros_above_a_diagonal])
def test_zeros_above_the_diagonal_are_no_failure(program: Any, first: Callable[..., dict[str, str]]) -> None:
    assert first(program)["rule"] == "WN201"


@pytest.mark.parametrize("program", [a_definite_matrix, a_solution_with_a_definite_matrix])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_all_that_fails_on_one_factor_is_one_finding(explained: Callable[..., Report]) -> None:
    (found,) = explained(a_likelihood).findings
    assert [member.op for member in found.also] == ["aten.log.default"]
