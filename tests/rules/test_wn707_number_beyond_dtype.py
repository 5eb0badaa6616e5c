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


def a_tensor_of_a_number() -> object:
    return torch.tensor(1e39) * 2


def a_tensor_of_numbers() -> object:
    big = 5.4e39
    return torch.tensor([[0.0, 1.0], [2.0, -big]]) @ torch.ones(2)


def a_tensor_of_a_product() -> object:
    return torch.ones(2).new_tensor(3e38 * 10) + 1


def a_tensor_in_float16() -> object:
    return torch.tensor(data=-1e9, dtype=torch.float16) + torch.zeros(2, dtype=torch.float16)


def a_tensor_in_float64() -> object:
    return torch.tensor(1e39, dtype=torch.float64) * 2


def a_tensor_of_an_infinity() -> object:
    return torch.tensor([1.0, float("inf")]) * 2


def a_mask_that_a_softmax_takes() -> object:
    # -1e9 is -Inf in float16, and the softmax makes it 0
    scores = torch.zeros(3, dtype=torch.float16).masked_fill(torch.tensor([True, False, False]), 0)
    return (scores + torch.tensor([-1e9, 0.0, 0.0], dtype=torch.float16)).softmax(-1)


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
    "program",
    [
        zero_times_a_number,
        a_product_that_would_fit,
        a_number_of_another_dtype,
        a_quotient_of_a_number,
        a_tensor_of_a_number,
        a_tensor_of_numbers,
        a_tensor_of_a_product,
        a_tensor_in_float16,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN707"
    assert said == snapshot


@pytest.mark.parametrize(
    "program",
    [
        a_number_in_float64,
        a_number_in_float16,
        an_infinity_that_is_written,
        a_mask_of_a_literal,
        a_tensor_in_float64,
        a_tensor_of_an_infinity,
        a_mask_that_a_softmax_takes,
    ],
)
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
