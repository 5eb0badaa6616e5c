"""Where gradients are added: in the engine, and into ``.grad``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.unit.capture.seen import code, only, sinks, traced


def leaf(value: float = 0.0) -> Tensor:
    return torch.full((1,), value, requires_grad=True)


def meeting(report_chain: object) -> list[tuple[str, str | None]]:
    """The steps of a chain that are sums of gradients."""
    return [(c.op, c.phase) for c in report_chain if c.phase == "accumulation"]  # type: ignore[attr-defined]


def test_opposite_infinities_that_meet_in_the_engine_are_two_roots() -> None:
    weight = leaf()
    report = traced(lambda: (weight.sqrt() - weight.clone().sqrt()).sum().backward())
    assert bool(weight.grad.isnan().all()) if weight.grad is not None else False
    # two roots, and one finding: they are terms of one formula under one rule
    (finding,) = report.findings
    sites = [finding.site, *(member.site for member in finding.also)]
    assert sorted(site.code or "" for site in sites if site is not None) == ["weight.clone().sqrt()", "weight.sqrt()"]
    assert [(member.phase, member.rule) for member in finding.also] == [("backward", finding.rule)]
    assert (finding.phase, finding.birth) == ("backward", "pole")
    assert meeting(finding.chain) == [("aten.add.Tensor", "accumulation")]
    assert ("gradient", "weight") in sinks(finding)


def test_opposite_infinities_that_meet_in_grad_are_two_roots() -> None:
    weight = leaf()

    def work() -> None:
        weight.sqrt().sum().backward()
        weight.sqrt().neg().sum().backward()

    report = traced(work)
    assert [f.phase for f in report.findings] == ["backward", "backward"]
    assert {m for f in report.findings for m in meeting(f.chain)} == {("aten.add_.Tensor", "accumulation")}


def test_finite_gradients_whose_sum_overflows_in_grad_are_a_birth_there() -> None:
    weight = leaf(1.0)

    def work() -> None:
        for _ in range(2):
            (weight * 3e38).sum().backward()

    finding = only(traced(work))
    assert (finding.phase, finding.birth, finding.op) == ("accumulation", "overflow", "aten.add_.Tensor")
    assert [o.value for o in finding.element.operands if o.dtype] == [pytest.approx(3e38), pytest.approx(3e38)]


def test_finite_gradients_whose_sum_overflows_in_the_engine_are_a_birth_there() -> None:
    weight = leaf(1.0)

    def work() -> None:
        doubled = weight * 1
        (doubled * 3e38 + doubled * 3e38).mul(0.9).sum().backward()

    finding = next(f for f in traced(work).findings if f.phase != "forward")
    assert (finding.phase, finding.birth, finding.op) == ("accumulation", "overflow", "aten.add.Tensor")
    assert finding.grad_fn is None


def test_a_gradient_that_the_engine_moves_into_grad_is_moved_under_a_trace_too() -> None:
    weight = leaf(1.0)
    seen: list[int] = []

    def work() -> None:
        scaled = weight * 2
        scaled.register_hook(lambda g: None)
        scaled.sum().backward()
        assert weight.grad is not None
        seen.append(weight.grad.data_ptr())

    report = traced(work)
    assert seen
    assert report.verdict == "clean"


def test_with_create_graph_the_sum_is_out_of_place_and_still_one() -> None:
    weight = leaf(1.0)

    def work() -> None:
        for _ in range(2):
            (weight * 3e38).sum().backward(create_graph=True)

    finding = only(traced(work))
    assert (finding.phase, finding.birth, finding.op) == ("accumulation", "overflow", "aten.add.Tensor")
    weight.grad = None


def test_a_shared_weight_is_named_at_its_first_use() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            first = self.weight * x
            return first + self.weight * x

    model = Twice()

    def work() -> None:
        for _ in range(2):
            (model(torch.full((1,), 1e38)) * 1.0).sum().backward()

    finding = only(traced(work))
    assert finding.phase == "accumulation"
    assert code(finding) == "self.weight * x"
    assert finding.site is not None
    assert finding.site.function is not None
    assert finding.site.function.endswith("Twice.forward")
    assert sinks(finding) == {("gradient", "weight")}


def test_healthy_accumulation_is_clean() -> None:
    weight = leaf(1.0)

    def work() -> None:
        for _ in range(3):
            (weight * 2 + weight.square()).sum().backward()

    assert traced(work).verdict == "clean"
