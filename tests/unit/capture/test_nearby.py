"""The operations around a birth: what its operands were computed from, and what was computed from it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tests.unit.capture.seen import watched
from whynan.capture.torch.provenance.neighbourhood import EventNeighbourhoods
from whynan.config import Options
from whynan.records import Neighbourhood, Operation
from whynan.run.region import Region


def around(program: Callable[[], Any], phase: str = "forward", memory: int | None = None) -> Neighbourhood:
    """What is around the first birth of a phase."""
    region = Region(Options(memory=memory), command="region", quiet=True)
    with region:
        program()
    (first, *_) = [b for b in region.trace.births if b.event.phase == phase]
    assert first.around is not None
    assert first.around.dialect == "aten"
    return first.around


def said(found: Neighbourhood) -> list[str]:
    """Each operation with its place from the middle."""
    return [f"{o.hops:+d} {o.op.split('.')[1]}" for o in found.operations]


def the(found: Neighbourhood, base: str) -> Operation:
    (one,) = [o for o in found.operations if o.op.split(".")[1] == base]
    return one


def row(*values: float, **options: Any) -> Tensor:
    return torch.tensor([values], **options)


def test_what_was_read_and_what_has_read_it_are_told() -> None:
    def work() -> Tensor:
        x = row(0.0, 200.0)
        p = x.softmax(-1)
        aside = x.relu()
        aside.neg()
        return (p.log() * aside).sum()

    assert said(around(work)) == ["-1 _softmax", "-1 relu", "+0 log", "+1 mul", "+2 sum"]


def test_views_are_no_operations_and_the_operands_are_those_behind_them() -> None:
    found = around(lambda: row(0.0, 200.0).softmax(-1)[:, 0].unsqueeze(0).log().reshape(-1).sum())
    assert said(found) == ["-1 _softmax", "+0 log", "+1 sum"]
    assert [a.event for a in the(found, "log").arguments] == [found.operations[0].event]


def test_a_birth_of_the_backward_has_the_neighbourhood_of_its_forward() -> None:
    def work() -> None:
        a = row(1.0, 2.0, requires_grad=True)
        ((a - a.detach()) ** 2).sum().sqrt().mul(3).backward()

    found = around(work, "backward")
    assert said(found)[:5] == ["-3 sub", "-2 pow", "-1 sum", "+0 sqrt", "+1 mul"]
    assert the(found, "pow").arguments[1].value == 2


def test_numbers_and_ranges_are_told() -> None:
    found = around(lambda: torch.add(row(-1.0, 3.0), row(1.0, 1.0), alpha=1).sum(-1, keepdim=True).sub(4).log())
    left, right = the(found, "add").arguments[:2]
    assert (left.min, left.max, right.min, right.max) == (-1.0, 3.0, 1.0, 1.0)
    total = the(found, "sum")
    assert [a.numbers for a in total.arguments if a.name == "dim"] == [(-1,)]
    assert total.shape == (1, 1)
    assert the(found, "sub").arguments[1].value == 4


def test_a_number_given_by_name_is_told() -> None:
    def work() -> Tensor:
        return torch.sub(row(2.0), row(1.0), alpha=2).log()

    assert [a.value for a in the(around(work), "sub").arguments if a.name == "alpha"] == [2]


def test_the_same_elements_have_the_same_number_in_any_shape() -> None:
    def work() -> Tensor:
        x, y = row(0.0, 1.0), row(0.0, 1.0)
        return (x[None] * y).sub(x.t()).log()

    found = around(work)
    (x, y), other = the(found, "mul").arguments, the(found, "sub").arguments[1]
    assert x.elements == other.elements != y.elements


def test_an_operand_that_was_overwritten_in_place_is_the_old_one() -> None:
    def work() -> Tensor:
        x = row(5.0, 1.0).add(0)
        x.sub_(5)
        return x.log_().neg_()

    found = around(work)
    assert said(found) == ["-2 add", "-1 sub_", "+0 log_", "+1 neg_"]
    assert (the(found, "sub_").arguments[0].min, the(found, "log_").arguments[0].min) == (1.0, -4.0)


def test_it_has_bounds() -> None:
    def work() -> Tensor:
        x = row(0.0, 1.0)
        for _ in range(40):
            x = x.mul(1)
        x = x.log()
        for _ in range(40):
            x = x.mul(1)
        return x

    assert [o.hops for o in around(work).operations] == list(range(-8, 8))


def test_many_operands_are_cut_off() -> None:
    def work() -> Tensor:
        leaves = [row(float(i)).mul(1) for i in range(40)]
        while len(leaves) > 1:
            leaves = [a.mul(b) for a, b in zip(leaves[::2], [*leaves[1::2], row(1.0)], strict=False)]
        return leaves[0].log()

    assert len(around(work).operations) == 25


def test_what_has_left_the_window_is_counted() -> None:
    def work() -> Tensor:
        x = torch.ones(1 << 12).mul(0)
        for _ in range(4):
            torch.ones(1 << 20).mul(1)
        return x.log()

    with_room = around(work)
    assert (said(with_room), with_room.gone) == (["-2 ones", "-1 mul", "+0 log"], 0)
    with_little = around(work, memory=1 << 20)
    assert (said(with_little), with_little.gone) == (["+0 log"], 1)


def test_a_recomputed_forward_has_its_neighbourhood() -> None:
    def work() -> None:
        a = row(0.0, 1.0, requires_grad=True)
        torch.where(a > 0, checkpoint(lambda x: x.mul(2).sqrt(), a, use_reentrant=False), 0.0).sum().backward()

    assert "+0 sqrt" in said(around(work, "backward"))


def test_it_keeps_no_tensor_alive() -> None:
    kept: list[weakref.ref[Any]] = []

    def work() -> None:
        x = row(0.0, 1.0).mul(2)
        kept.append(weakref.ref(x))
        x.log().sum()

    region = watched(work)
    gc.collect()
    assert region.trace.births[0].around is not None
    assert kept[0]() is None


def test_nothing_is_asked_for_while_nothing_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    known = EventNeighbourhoods.operation

    def operation(self: EventNeighbourhoods, event: int, hops: int, numbers: Any) -> Operation | None:
        asked.append(event)
        return known(self, event, hops, numbers)

    monkeypatch.setattr(EventNeighbourhoods, "operation", operation)
    watched(lambda: row(1.0, 2.0).log().sum())
    assert not asked
    watched(lambda: row(0.0, 2.0).log().sum())
    assert asked
