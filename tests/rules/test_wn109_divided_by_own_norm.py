"""WN109 divided-by-own-norm: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def a_norm() -> object:
    x = torch.zeros(2, 3)
    return x / x.norm(dim=-1, keepdim=True)


def written_out() -> object:
    x = torch.zeros(2, 3)
    length = (x**2).sum(-1, keepdim=True).sqrt()
    return x * length.reciprocal()


def in_half() -> object:
    x = torch.zeros(2, 3).half()
    return x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-8)


def normalize() -> object:
    return F.normalize(torch.zeros(2, 3), dim=-1)


def its_gradient() -> object:
    x = torch.zeros(2, 3, requires_grad=True)
    (x / x.norm(dim=-1, keepdim=True)).nan_to_num(0.0).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_norm, written_out, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN109"
    assert said == snapshot


@pytest.mark.parametrize("program", [normalize])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_the_norm_of_something_else_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    assert first(lambda: torch.zeros(3) / torch.linalg.vector_norm(torch.zeros(3) * 2.0))["rule"] == "WN101"


def test_a_quotient_by_what_is_no_norm_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    def weight_of_unit_vectors() -> torch.Tensor:
        x = torch.tensor([[1.0, 0.0]])
        unit = x / x.norm(dim=-1, keepdim=True)
        angle = torch.acos((unit * unit).sum(-1, keepdim=True))
        return torch.sin(0.25 * angle) / torch.sin(angle) * unit

    assert first(weight_of_unit_vectors)["rule"] == "WN101"


@pytest.mark.parametrize("program", [in_half])
def test_one_with_an_eps_that_is_0_in_the_dtype_is_left_to_another(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == "WN704"


def a_mean_that_is_normalised_later() -> object:
    total, count = torch.tensor([[0.0, 0.0], [1.0, 2.0]]), torch.bincount(torch.tensor([1, 1]))[:, None]
    return torch.nn.functional.normalize(total / count)


def test_a_norm_that_comes_later_is_not_what_was_divided_by(first: Callable[..., dict[str, str]]) -> None:
    assert first(a_mean_that_is_normalised_later)["rule"] in ("WN601", "WN101")
