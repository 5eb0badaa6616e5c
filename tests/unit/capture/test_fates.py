"""What becomes of a bad number: which operations drop it, which carry it, element by element."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import whynan
from tests.selection import spread
from tests.unit.capture.seen import code, only

NAN = torch.tensor([1.0, -1.0, 4.0])
"""The square root of the second element is NaN."""


def bad() -> Tensor:
    """NaN at 1, finite elsewhere; born where this is called from."""
    return NAN.clone().sqrt()


DROPS: dict[str, Callable[[Tensor], Tensor]] = {
    "where": lambda x: torch.where(x.isnan(), torch.zeros(3), x),
    "masked_fill": lambda x: x.masked_fill(x.isnan(), 0.0),
    "nan_to_num": lambda x: x.nan_to_num(0.0),
    "an index": lambda x: x[torch.tensor([0, 2])],
    "a boolean mask": lambda x: x[~x.isnan()],
    "a slice": lambda x: x[2:],
    "index_select": lambda x: x.index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(0, torch.tensor([2, 0])),
    "nansum": lambda x: x.nansum(),
    "nanmean": lambda x: x.nanmean(),
    "nanmedian": lambda x: x.nanmedian(),
    "fmax": lambda x: x.fmax(torch.zeros(3)),
    "fmin": lambda x: x.fmin(torch.zeros(3)),
    "an overwrite of the element": lambda x: x.index_fill_(0, torch.tensor([1]), 0.0),
    "an overwrite through a view": lambda x: (x[1:2].zero_(), x)[1],
    "an overwrite of everything": lambda x: x.copy_(torch.ones(3)),
    "zero_": lambda x: x.zero_(),
    "zeros_like": torch.zeros_like,
    "masked_scatter": lambda x: x.masked_scatter(x.isnan(), torch.zeros(1)),
    "scatter": lambda x: x.scatter(0, torch.tensor([1]), 0.0),
    "set an element": lambda x: (x.__setitem__(1, 0.0), x)[1],
}

CARRIES: dict[str, Callable[[Tensor], Tensor]] = {
    "a multiplication by zero": lambda x: x * 0.0,
    "a multiplication by a mask": lambda x: x * (~x.isnan()).float(),
    "max": lambda x: x.max(),
    "clamp": lambda x: x.clamp(0.0, 1.0),
    "clamp of one side": lambda x: x.clamp(min=0.0),
    "maximum": lambda x: x.maximum(torch.zeros(3)),
    "relu": lambda x: x.relu(),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "sort": lambda x: x.sort().values,
    "topk": lambda x: x.topk(1).values,
    "softmax": lambda x: x.softmax(0),
    "matmul": lambda x: x @ torch.zeros(3),
    "cumsum": lambda x: x.cumsum(0),
    "cat": lambda x: torch.cat([torch.zeros(2), x]),
    "stack": lambda x: torch.stack([torch.zeros(3), x]),
    "a view": lambda x: x.view(3, 1),
    "expand": lambda x: x[None].expand(2, 3),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1),
    "the bad element": lambda x: x[1],
    "clone": lambda x: x.clone(),
    "a cast": lambda x: x.double(),
    "a cast to half": lambda x: x.half(),
    "where that selects it": lambda x: torch.where(x.isnan(), x, torch.zeros(3)),
    "an addition in place": lambda x: x.add_(1.0),
    "copy_ into another": lambda x: torch.zeros(3).copy_(x),
    "a write into a part of another": lambda x: (t := torch.zeros(5), t[1:4].copy_(x))[0],
    "index_put": lambda x: torch.zeros(5).index_put((torch.tensor([0, 1, 2]),), x),
    "a convolution": lambda x: torch.conv1d(x.view(1, 1, 3), torch.ones(1, 1, 2)),
    "layer_norm": lambda x: torch.layer_norm(x, (3,)),
    "bmm": lambda x: x.view(1, 1, 3) @ torch.ones(1, 3, 1),
    "embedding": lambda x: torch.nn.functional.embedding(torch.tensor([1]), x.view(3, 1)),
    "norm": lambda x: x.norm(),
    "std": lambda x: x.std(),
    "prod": lambda x: x.prod(),
    "logsumexp": lambda x: x.logsumexp(0),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1)),
    "tril": lambda x: x.expand(3, 3).tril(),
    "fft": lambda x: torch.fft.fft(x).real,
    "complex": lambda x: torch.complex(x, x),
    "einsum": lambda x: torch.einsum("i,i->", x, torch.ones(3)),
    "repeat": lambda x: x.repeat(2),
    "repeat_interleave": lambda x: x.repeat_interleave(2),
    "unfold": lambda x: x.unfold(0, 2, 1).sum(1),
    "interpolate": lambda x: torch.nn.functional.interpolate(x.view(1, 1, 3), size=5, mode="linear"),
    "lerp": lambda x: x.lerp(torch.zeros(3), 1.0),
    "addcmul": lambda x: torch.zeros(3).addcmul(x, torch.zeros(3)),
}


@pytest.mark.parametrize("case", DROPS)
def test_what_drops_it_absorbs_the_birth(case: str) -> None:
    report = whynan.explain(lambda: DROPS[case](bad()))
    assert report.verdict == "clean", report
    assert report.absorbed_count == 1
    assert report.absorbed[0].fate == "absorbed"


@pytest.mark.parametrize("case", spread(CARRIES, 3))
def test_what_carries_it_lets_it_escape_as_one_finding(case: str) -> None:
    finding = only(whynan.explain(lambda: CARRIES[case](bad())))
    assert (finding.op, finding.birth, finding.fate) == ("aten.sqrt.default", "invalid", "escaped")
    assert code(finding) == "NAN.clone().sqrt()"
    assert (finding.element.index, finding.element.count, finding.element.total) == ((1,), 1, 3)


def test_of_two_births_only_the_one_that_is_selected_escapes() -> None:
    def target(x: Tensor) -> Tensor:
        logs = x.log()
        roots = x.sqrt()
        return torch.where(x < 0, torch.zeros(2), logs) + torch.where(x < 0, torch.zeros(2), roots)

    report = whynan.explain(target, torch.tensor([-1.0, 0.0]))
    finding = only(report)
    assert (finding.op, finding.birth, finding.element.index) == ("aten.log.default", "pole", (1,))
    assert finding.element.count == 1 or finding.element.count == 2
    # the NaN that the same log gave at [0] was left behind
    assert [(f.op, f.birth) for f in report.absorbed] == [
        ("aten.log.default", "invalid"),
        ("aten.sqrt.default", "invalid"),
    ]


def test_bad_rows_through_a_matmul_are_told_apart() -> None:
    def target(x: Tensor) -> Tensor:
        mixed = torch.stack([x[0].sqrt(), x[1].log(), x[2]])
        return (mixed @ torch.ones(2, 2))[1]

    report = whynan.explain(target, torch.tensor([[-1.0, 1.0], [-2.0, 1.0], [1.0, 1.0]]))
    assert only(report).op == "aten.log.default"
    assert [f.op for f in report.absorbed] == ["aten.sqrt.default"]


def test_a_nan_made_from_a_born_infinity_is_a_step_of_its_chain() -> None:
    def target(x: Tensor) -> Tensor:
        high = x.exp()
        return high - high.clone()

    finding = only(whynan.explain(target, torch.tensor([100.0])))
    assert (finding.op, finding.birth) == ("aten.exp.default", "overflow")
    assert [(c.role, c.op) for c in finding.chain if c.role in ("birth", "step")] == [
        ("birth", "aten.exp.default"),
        ("step", "aten.clone.default"),
        ("step", "aten.sub.Tensor"),
    ]


def test_opposite_infinities_that_meet_are_two_roots() -> None:
    def target(x: Tensor) -> Tensor:
        return x.exp() + (-x).reciprocal().mul(1e38).mul(1e38)

    report = whynan.explain(target, torch.tensor([100.0]))
    assert {f.op for f in report.findings} == {"aten.exp.default", "aten.mul.Tensor"}
    assert {f.birth for f in report.findings} == {"overflow"}


def test_a_forward_value_that_comes_back_in_the_backward_is_the_root() -> None:
    weight = torch.tensor([-1.0, 4.0], requires_grad=True)

    def target() -> None:
        safe = torch.where(weight > 0, weight.sqrt(), torch.zeros(2))
        safe.sum().backward()

    finding = only(whynan.explain(target))
    assert finding.phase == "forward"
    assert code(finding) == "weight.sqrt()"
    assert finding.reaches[0].bad == 1


def test_an_infinity_that_a_saturating_function_takes_is_absorbed() -> None:
    def target(x: Tensor) -> Tensor:
        return 1.0 / (1.0 + x.exp())

    report = whynan.explain(target, torch.tensor([100.0]))
    assert report.verdict == "clean"
    assert [(f.op, f.birth) for f in report.absorbed] == [("aten.exp.default", "overflow")]


def test_the_first_element_is_first_in_row_major_order() -> None:
    def target() -> Tensor:
        x = torch.ones(3, 4).t()
        x[2, 1] = x[3, 0] = -1.0
        return x.sqrt()

    element = only(whynan.explain(target)).element
    assert (element.index, element.shape, element.count) == ((2, 1), (4, 3), 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_every_floating_type_is_looked_at(dtype: torch.dtype) -> None:
    def target() -> Tensor:
        return torch.zeros(3, dtype=dtype).reciprocal()

    element = only(whynan.explain(target)).element
    assert element.dtype == str(dtype).removeprefix("torch.")
    assert element.count == 3


def test_the_gradient_of_a_distance_to_itself_is_bad_for_every_point() -> None:
    points = torch.nn.Parameter(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))

    def work() -> None:
        distance = (points[:, None] - points[None]).norm(dim=-1)
        (1 / distance).triu(1).sum().backward()

    report = whynan.explain(work)
    finding = only(report)
    assert [(r.name, r.bad, r.total) for r in finding.reaches] == [("points", 6, 6)]
    assert (finding.op, finding.phase) == ("aten.reciprocal.default", "forward")
    assert {(f.op, f.phase) for f in report.absorbed} == {("aten.div.Tensor", "backward")}
    causes = [link.summary for link in finding.chain if link.role == "cause"]
    assert causes == ["0 minus 0 is 0", "linalg_vector_norm of a row of 0 is 0"]


def test_an_output_is_numbered_among_the_results_of_its_operation() -> None:
    batch = torch.full((4, 1), 3e38)
    findings = whynan.explain(lambda: torch.nn.BatchNorm1d(1)(batch)).findings
    (result,) = (f.element for f in findings if f.element.tensor is None and f.element.shape == (4, 1))
    assert result.output == 0
