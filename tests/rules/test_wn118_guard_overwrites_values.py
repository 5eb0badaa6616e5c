"""WN118 guard-overwrites-values: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def signed() -> torch.Tensor:
    return torch.linspace(-2, 3, 50)


def written_at_a_mask() -> object:
    x = signed()
    x[x <= 1e-4] = 1e-4
    return 1 / x


def a_mask_of_another_statement() -> object:
    x = signed()
    near = x < 1e-10
    x = x * near.logical_not()
    x = x + near * 1e-10
    return torch.atan2(torch.ones(50), x)


def numbers_for_a_mask() -> object:
    x = signed()
    near = (x < 1e-6).float()
    return 1e-6 * near + (1 - near) * x


def filled() -> object:
    x = signed()
    return x.masked_fill(x < 1e-6, 1e-6)


def filled_in_place() -> object:
    x = signed()
    return x.masked_fill_(x.less(1e-6), 1e-6)


def chosen() -> object:
    x = signed()
    return torch.where(x < 1e-6, 1e-6, x)


def chosen_the_other_way_round() -> object:
    x = signed()
    return torch.where(x > 1e-6, x, torch.full_like(x, 1e-6))


def in_half_precision() -> object:
    x = signed().half()
    return x.masked_fill(~(x > 1e-3), 1e-3)


def with_a_gradient() -> object:
    x = signed().requires_grad_()
    y = x.clone()
    y[y <= 1e-4] = 1e-4
    y.log().sum().backward()
    return x.grad


def the_magnitude_is_compared() -> object:
    x = signed()
    x[x.abs() <= 1e-4] = 1e-4
    return x


def positive_by_construction() -> object:
    x = signed().square()
    x[x <= 1e-4] = 1e-4
    return x.log()


def a_floor_that_says_so() -> object:
    return signed().clamp(min=1e-6).pow(3)


def rectified() -> object:
    x = signed()
    x[x < 0] = 0.0
    return x


def cut_off_above() -> object:
    x = signed()
    x[x > 1e-3] = 1e-3
    return x


def a_padding_mask() -> object:
    x = signed()
    return x.masked_fill(torch.arange(50) < 20, 1e-9)


def one_of_many() -> object:
    x = torch.linspace(0.5, 3, 500)
    x[7] = -1.0
    x[x < 1e-6] = 1e-6
    return x


def a_mask_of_something_else() -> object:
    x = signed()
    return torch.where(x.flip(0) < 1e-6, 1e-6, x)


@pytest.mark.parametrize(
    "program",
    [
        written_at_a_mask,
        a_mask_of_another_statement,
        numbers_for_a_mask,
        filled,
        filled_in_place,
        chosen,
        chosen_the_other_way_round,
        in_half_precision,
        with_a_gradient,
    ],
)
def test_it_says_what_happened(
    program: Any, warned: Callable[..., dict[str, str]], snapshot: SnapshotAssertion
) -> None:
    said = warned(program)
    assert said["rule"] == "WN118"
    assert said == snapshot


@pytest.mark.parametrize(
    "program",
    [
        the_magnitude_is_compared,
        positive_by_construction,
        a_floor_that_says_so,
        rectified,
        cut_off_above,
        a_padding_mask,
        one_of_many,
        a_mask_of_something_else,
    ],
)
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
