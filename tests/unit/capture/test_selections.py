"""What leaves the forward's result out where its gradient went bad, told with the birth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from whynan.config import Options
from whynan.records import Selection
from whynan.run.region import Region

ZERO_AND_ONE = torch.tensor([0.0, 1.0])


def left_out(function: Callable[[Tensor], Tensor], x: Tensor = ZERO_AND_ONE, **options: Any) -> Selection | None:
    """Of the first birth in the backward of a function's sum."""
    region = Region(Options(**options), command="region", quiet=True)
    with region:
        leaf = x.clone().requires_grad_()
        function(leaf).sum().backward()
    (first, *_) = [b for b in region.trace.births if b.event.phase == "backward"]
    return None if first.around is None else first.around.left_out


def test_the_operation_the_side_and_the_mask_are_told() -> None:
    found = left_out(lambda x: torch.where(x > 0, x.sqrt(), 0.0))
    assert found is not None
    assert (found.op, found.side, found.mask) == ("aten.where.self", "self", "x > 0")
    assert found.line is not None


def test_of_two_ways_the_one_that_a_mask_ends_is_told() -> None:
    def branches(x: Tensor) -> Tensor:
        root = torch.sqrt(x + 1)
        share = x / torch.clamp(root, min=0.1)
        return torch.where(x > 0, root + share, x)

    found = left_out(branches, torch.tensor([-1.0, 2.0]))
    assert found is not None
    assert (found.op, found.mask) == ("aten.where.self", "x > 0")


def test_a_way_through_a_broadcast_is_followed_to_all_its_elements() -> None:
    wide = torch.ones(3)
    some = torch.tensor([[True, False, False], [False, False, False]])
    none = torch.tensor([[False, False, False], [True, True, True]])
    assert left_out(lambda x: torch.where(none, x.sqrt()[:, None] * wide, 0.0)) is not None
    assert left_out(lambda x: torch.where(some, x.sqrt()[:, None] * wide, 0.0)) is None


def test_a_way_through_what_moves_elements_is_followed() -> None:
    keep = torch.tensor([1.0, 0.0, 1.0, 0.0])
    assert left_out(lambda x: torch.cat([torch.ones(2), x.sqrt().flip(0)]) * keep) is not None
    assert left_out(lambda x: torch.cat([torch.ones(2), x.sqrt()]) * keep.flip(0)) is not None
    assert left_out(lambda x: torch.cat([torch.ones(2), x.sqrt()]) * keep) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sqrt(),
        lambda x: x.sqrt() + torch.where(x > 0, x.sqrt(), 0.0).detach(),
        lambda x: torch.where(x.sqrt().sum() > 0, x.sqrt(), 0.0),
        lambda x: torch.where(x == 0, x.sqrt(), 0.0),
        lambda x: x.sqrt() * 0.5,
        lambda x: x.sqrt().cumsum(0) * (x > 0),
    ],
)
def test_what_is_not_left_out_in_every_way_is_not_told(function: Callable[[Tensor], Tensor]) -> None:
    assert left_out(function) is None


def test_asking_for_a_value_is_no_use_of_it() -> None:
    def finite(x: Tensor) -> Tensor:
        root = x.rsqrt()
        return torch.where(root.isfinite() & (root < 10), root, 0.0)

    assert left_out(finite) is not None


def test_what_the_window_does_not_hold_any_more_is_not_told() -> None:
    assert left_out(lambda x: torch.where(x > 0, x.sqrt(), 0.0), memory=1) is None


def test_an_element_of_a_product_of_matrices_is_not_followed() -> None:
    matrix = torch.tensor([[float("inf"), 0.0], [0.0, 1.0]])
    kept = torch.tensor([[False], [True]])
    assert left_out(lambda x: torch.where(kept, matrix @ x[:, None], 0.0)) is None


def test_of_a_row_that_depends_on_the_element_all_is_left_out() -> None:
    def masked(x: Tensor) -> Tensor:
        weights = torch.softmax(x[:, None] + torch.tensor([[-float("inf")] * 2, [0.0, 1.0]]), -1)
        return torch.where(torch.tensor([[False, False], [True, True]]), weights, 0.0)

    assert left_out(masked) is not None
