"""WN707 number-beyond-dtype: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def zero_times_a_number() -> object:
    x = torch.tensor([0.0, 1e-20])
    return x * 5.4e39


def a_product_that_would_fit() -> object:
    x = torch.tensor([1e-20])
    return x * 5.4e39


def a_number_of_another_dtype() -> object:
    x = torch.tensor([0.0])
    return x * torch.tensor(5.4e39, dtype=torch.float64)


def a_quotient_of_a_number() -> object:
    x = torch.tensor([1e10])
    return 1e39 / x


def a_number_in_float64() -> object:
    x = torch.tensor([0.0, 1e-20])
    return (x.double() * 5.4e39).float()


def a_number_in_float16() -> object:
    # computed in float32
    x = torch.tensor([0.0, 0.5], dtype=torch.float16)
    return x * 1e5


def an_infinity_that_is_written() -> object:
    return torch.tensor([1.0, 2.0]) * float("inf")


def a_mask_of_a_literal() -> object:
    x = torch.zeros(3).masked_fill(torch.tensor([True, False, False]), float("-inf"))
    return x.log_softmax(-1)


@pytest.mark.parametrize(
    "program", [zero_times_a_number, a_product_that_would_fit, a_number_of_another_dtype, a_quotient_of_a_number]
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN707"
    assert said == snapshot


@pytest.mark.parametrize(
    "program", [a_number_in_float64, a_number_in_float16, an_infinity_that_is_written, a_mask_of_a_literal]
)
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
