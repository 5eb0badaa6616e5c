"""WN701 out-of-range: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_product_in_half() -> object:
    x = torch.full((2,), 300.0, dtype=torch.float16)
    return x * x


def a_sum() -> object:
    x = torch.full((2,), -3e38)
    return x + x


def a_power() -> object:
    return torch.full((2,), 1e20) ** 3


def a_matrix_product() -> object:
    return torch.full((2, 2), 1e30) @ torch.full((2, 2), 1e30)


def a_cast() -> object:
    return torch.full((2,), 1e6).half()


def a_sum_over_a_row() -> object:
    return torch.full((4,), 3e38).sum()


def a_product_in_bfloat16() -> object:
    x = torch.full((2,), 300.0, dtype=torch.bfloat16)
    return x * x


@pytest.mark.parametrize("program", [a_product_in_half, a_sum, a_power, a_matrix_product, a_cast, a_sum_over_a_row])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN701"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_product_in_bfloat16])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
