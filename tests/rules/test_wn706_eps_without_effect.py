"""WN706 eps-without-effect: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def added_under_a_root() -> object:
    return torch.sqrt(torch.tensor([0.0, 1.0]).half() + 1e-8)


def added_in_place() -> object:
    x = torch.tensor([0.0, 0.0, 1.0]).half()
    x += 1e-8
    return x


def a_lower_bound() -> object:
    return torch.tensor([0.0, 1.0]).half().clamp(min=1e-8)


def an_upper_bound() -> object:
    p = torch.tensor([0.5, 1.0])
    return p.clamp(1e-8, 1 - 1e-8)


def both_ends() -> object:
    return torch.tensor([-1.0, 0.5]).clamp(-1 + 1e-8, 1 - 1e-8)


def in_bfloat16() -> object:
    p = torch.tensor([0.5, 1.0]).bfloat16()
    return p.clamp(max=1 - 1e-3)


def large_enough() -> object:
    return torch.sqrt(torch.tensor([0.0, 1.0]).half() + 1e-4)


def in_float32() -> object:
    return torch.sqrt(torch.tensor([0.0, 1.0]) + 1e-8)


def not_needed() -> object:
    return torch.tensor([0.5, 1.0]).half() + 1e-8


def a_bound_that_none_lies_on() -> object:
    return torch.tensor([0.5, 0.9]).clamp(1e-8, 1 - 1e-8)


def a_margin_that_is_one() -> object:
    return torch.tensor([0.5, 1.0]).clamp(1e-6, 1 - 1e-6)


def merely_small_beside_it() -> object:
    return torch.tensor([3e4, 1.0]).half() + 1e-4


def clamped_to_one() -> object:
    return torch.tensor([0.5, 2.0]).clamp(0, 1)


def asked_for() -> object:
    x = torch.tensor([0.0, 1.0]).half()
    below = x + 1e-8
    return x / torch.where(below == 0, 1, below)


def asked_for_by_a_bound() -> object:
    below = torch.tensor([0.0, 1.0]).half().clamp(min=1e-8)
    return torch.where(below > 0, below, 1)


def compared_with_another_number() -> object:
    below = torch.tensor([0.0, 1.0]).half() + 1e-8
    return torch.where(below == 1, 0, below)


def compared_before() -> object:
    x = torch.tensor([0.0, 1.0]).half()
    return torch.where(x == 0, x + 1e-8, x)


@pytest.mark.parametrize("program", [compared_with_another_number, compared_before])
def test_a_comparison_with_anything_else_does_not_ask_for_it(
    program: Any, warned: Callable[..., dict[str, str]]
) -> None:
    assert warned(program)["rule"] == "WN706"


@pytest.mark.parametrize(
    "program", [added_under_a_root, added_in_place, a_lower_bound, an_upper_bound, both_ends, in_bfloat16]
)
def test_it_says_what_happened(
    program: Any, warned: Callable[..., dict[str, str]], snapshot: SnapshotAssertion
) -> None:
    said = warned(program)
    assert said["rule"] == "WN706"
    assert said == snapshot


@pytest.mark.parametrize(
    "program",
    [
        large_enough,
        in_float32,
        not_needed,
        a_bound_that_none_lies_on,
        a_margin_that_is_one,
        merely_small_beside_it,
        clamped_to_one,
        asked_for,
        asked_for_by_a_bound,
    ],
)
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
