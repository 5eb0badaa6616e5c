"""WN120 denominator-too-small: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_quotient() -> object:
    return torch.tensor([1e5, 1.0]) / torch.tensor([1e-35, 1.0])


def the_root_of_a_product() -> object:
    x, y = torch.tensor([1e-22, 1.0], requires_grad=True), torch.tensor([1e-19, 1.0])
    (torch.tensor([1e-21, 1.0]) / torch.sqrt(x * y)).sum().backward()
    return x.grad


def in_float16() -> object:
    return torch.tensor([30.0, 1.0]).half() / torch.tensor([1e-4, 1.0]).half()


def the_roots_of_its_factors() -> object:
    x, y = torch.tensor([1e-22, 1.0], requires_grad=True), torch.tensor([1e-19, 1.0])
    (torch.tensor([1e-21, 1.0]) / (torch.sqrt(x) * torch.sqrt(y))).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [a_quotient, the_root_of_a_product, in_float16])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN120"
    assert said == snapshot


@pytest.mark.parametrize("program", [the_roots_of_its_factors])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def a_numerator_too_large() -> object:
    return torch.tensor([1e38, 1.0]) / torch.tensor([1e-5, 1.0])


def a_subnormal_denominator() -> object:
    return 1 / torch.tensor([1e-39, 1.0])


@pytest.mark.parametrize(("program", "rule"), [(a_numerator_too_large, "WN701"), (a_subnormal_denominator, "WN117")])
def test_the_same_operation_of_another_cause_is_left_to_others(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
