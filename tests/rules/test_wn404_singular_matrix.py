"""WN404 singular-matrix: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_determinant_of_zero() -> object:
    return torch.logdet(torch.ones(2, 2))


def the_logarithm_of_one() -> object:
    return torch.linalg.det(torch.ones(2, 2)).abs().log()


def a_determinant_out_of_range() -> object:
    return torch.linalg.det(1e-3 * torch.eye(20)).log()


def a_gradient_of_a_small_determinant() -> object:
    matrix = (1e-20 * torch.eye(2)).requires_grad_()
    loss = torch.log(torch.det(matrix).abs())
    loss.backward()
    return loss.detach()


def an_unchecked_inverse() -> object:
    return torch.linalg.inv_ex(torch.ones(2, 2)).inverse


def a_triangular_system() -> object:
    system = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return torch.linalg.solve_triangular(system, torch.ones(2, 1), upper=False)


def a_negative_determinant() -> object:
    kernel = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    return torch.logdet(kernel) * 0.5


def one_of_a_batch() -> object:
    kernels = torch.stack([torch.eye(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]])]).requires_grad_()
    loss = kernels.logdet().sum()
    loss.backward()
    return loss.detach()


def a_negative_determinant_that_is_not_chosen() -> object:
    kernels = torch.stack([torch.eye(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]])])
    return torch.logdet(kernels)[0]


def a_nan_chosen_by_a_sign() -> object:
    sign, magnitude = torch.linalg.slogdet(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    return torch.where(sign == -1, float("nan"), magnitude)


def a_regularised_determinant() -> object:
    return torch.logdet(torch.ones(2, 2) + 1e-3 * torch.eye(2))


def a_named_matrix() -> object:
    covariance = torch.ones(2, 2)
    return torch.logdet(covariance)


@pytest.mark.parametrize(
    "program",
    [
        a_determinant_of_zero,
        the_logarithm_of_one,
        a_determinant_out_of_range,
        a_gradient_of_a_small_determinant,
        an_unchecked_inverse,
        a_triangular_system,
        a_named_matrix,
        a_negative_determinant,
        one_of_a_batch,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN404"
    assert said == snapshot


@pytest.mark.parametrize(
    "program", [a_regularised_determinant, a_negative_determinant_that_is_not_chosen, a_nan_chosen_by_a_sign]
)
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
