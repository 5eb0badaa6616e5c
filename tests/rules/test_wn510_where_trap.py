"""WN510 where-trap: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

import whynan


def gradient(function: Callable[[Tensor], Tensor], *values: float) -> object:
    x = torch.tensor(values, requires_grad=True)
    function(x).sum().backward()
    return x.grad


def where() -> object:
    return gradient(lambda x: torch.where(x > 0, torch.log(x), 0.0), 0.0, 1.0)


def the_other_side_of_where() -> object:
    return gradient(lambda x: torch.where(x > 0, x, torch.exp(x) - 1), 100.0, -1.0)


def a_nan_of_the_forward() -> object:
    return gradient(lambda x: torch.where(x > 0, x.sqrt(), 0.0), -1.0, 4.0)


def a_reciprocal() -> object:
    return gradient(lambda z: torch.where(z.abs() > 1e-8, 1 / z, 1.0), 0.0, 2.0)


def a_quotient() -> object:
    return gradient(lambda x: torch.where(x > 0, (x + 1) / x, 0.0), 0.0, 2.0)


def an_arc() -> object:
    return gradient(lambda x: torch.where(x < 1, x.acos(), 0.0), 1.0, 0.5)


def split_over_statements() -> object:
    x = torch.tensor([[0.0], [1.0]], requires_grad=True)
    positive = x > 0
    root = x.sqrt()
    scaled = 2 * root.squeeze(-1) + 1
    torch.where(positive.squeeze(-1), scaled, 0.0).mean().backward()
    return x.grad


def masked_fill() -> object:
    return gradient(lambda x: x.sqrt().masked_fill(x == 0, 0.0), 0.0, 1.0)


def nan_to_num() -> object:
    return gradient(lambda x: x.log().nan_to_num(neginf=0.0), 0.0, 1.0)


def a_mask_by_multiplication() -> object:
    return gradient(lambda x: x.sqrt() * (x > 0), 0.0, 1.0)


def a_mask_of_numbers() -> object:
    mask = torch.tensor([0.0, 1.0])
    return gradient(lambda x: (x.sqrt() * mask).sum() / mask.sum(), 0.0, 1.0)


def a_clip() -> object:
    return gradient(lambda x: x.log().clamp_min(-5.0), 0.0, 1.0)


def a_maximum() -> object:
    floor = torch.tensor(-5.0)
    return gradient(lambda x: torch.maximum(x.log(), floor), 0.0, 1.0)


def an_index() -> object:
    return gradient(lambda x: x.log()[x > 0], 0.0, 1.0)


def a_slice() -> object:
    return gradient(lambda x: x.log()[1:], 0.0, 1.0)


def an_assignment() -> object:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    y = x.log()
    y[x == 0] = 0.0
    y.sum().backward()
    return x.grad


def a_row_of_padding() -> object:
    seen = torch.tensor([[True, True], [False, False]])
    scores = torch.zeros(2, 2, requires_grad=True)
    weights = torch.softmax(scores + torch.where(seen, 0.0, float("-inf")), -1)
    torch.where(seen, weights, 0.0).sum().backward()
    return scores.grad


def twice_where() -> object:
    return gradient(lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).log(), 0.0), 0.0, 1.0)


def selected_first() -> object:
    return gradient(lambda x: x[x > 0].log(), 0.0, 1.0)


def clipped_inside() -> object:
    return gradient(lambda x: torch.where(x > 0, x, torch.exp(x.clamp(max=0)) - 1), 100.0, -1.0)


SELECTIONS = [
    where, the_other_side_of_where, a_nan_of_the_forward, a_reciprocal, a_quotient, an_arc, split_over_statements,
    masked_fill, nan_to_num, a_mask_by_multiplication, a_mask_of_numbers, a_clip, a_maximum, an_index, a_slice,
    an_assignment, a_row_of_padding,
]  # fmt: skip


@pytest.mark.parametrize("program", SELECTIONS)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN510"
    assert said == snapshot


@pytest.mark.parametrize("program", [twice_where, selected_first, clipped_inside])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


@pytest.mark.parametrize(
    ("program", "inner"),
    [
        (where, "WN201"),
        (masked_fill, "WN301"),
        (a_nan_of_the_forward, "WN302"),
        (an_arc, "WN402"),
        (a_reciprocal, "WN102"),
    ],
)
def test_the_rule_of_the_operation_matches_too(program: Any, inner: str) -> None:
    assert inner in whynan.explain(program).findings[0].matched


def taken_by_where() -> object:
    """The mask lets the bad element through: it is no trap."""
    return gradient(lambda x: torch.where(x == 0, x.sqrt(), 0.0), 0.0, 1.0)


def another_element() -> object:
    return gradient(lambda x: x.sqrt().masked_fill(x == 1, 0.0), 0.0, 1.0)


def a_small_factor() -> object:
    return gradient(lambda x: x.sqrt() * x, 0.0, 1.0)


def a_computed_factor() -> object:
    return gradient(lambda p: (1 - p) ** 0.5 * p.log(), 1.0)


@pytest.mark.parametrize("program", [taken_by_where, another_element, a_small_factor, a_computed_factor])
def test_what_is_not_left_out_is_left_to_the_rule_of_the_operation(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] in ("WN301", "WN303")


def test_a_result_that_is_also_used_is_not_left_out() -> None:
    def program() -> object:
        x = torch.tensor([0.0, 1.0], requires_grad=True)
        root = x.sqrt()
        (root + torch.where(x > 0, root, 0.0)).sum().backward()
        return x.grad

    assert whynan.explain(program).findings[0].rule == "WN301"


def test_a_better_spelling_says_more_than_a_second_where() -> None:
    def program() -> object:
        return gradient(lambda x: torch.where(x > 20, x, torch.log(1 + torch.exp(x))), 100.0, 1.0)

    finding = whynan.explain(program).findings[0]
    assert finding.rule == "WN211"
    assert "WN510" in finding.matched
    assert finding.explanation.endswith("the derivative is computed all the same.")
