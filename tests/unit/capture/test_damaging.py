"""Finite values that a bad number made wrong: told as a warning where they reach a sink."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import whynan
from tests.unit.capture.seen import traced

LARGE = torch.tensor([300.0, 300.0], dtype=torch.float16)


def half_norm(x: Tensor) -> Tensor:
    """An RMS norm in half precision: the mean of squares overflows, its inverse is 0, and so is the result."""
    return x * x.square().mean().rsqrt()


def test_a_result_that_overflow_turned_to_zero_is_damage() -> None:
    assert half_norm(LARGE).tolist() == [0.0, 0.0]
    report = whynan.explain(half_norm, LARGE)
    assert report.verdict == "damaged"
    assert report.findings == ()
    (finding,) = report.damaging
    assert (finding.op, finding.birth, finding.fate, finding.severity) == (
        "aten.pow.Tensor_Scalar",
        "overflow",
        "damaging",
        "warning",
    )
    assert [(r.kind, r.name) for r in finding.reaches] == [("output", "output")]
    assert report.run.exit_status.whynan == 0


def test_a_result_that_is_right_all_the_same_is_none() -> None:
    def sigmoid(x: Tensor) -> Tensor:
        return 1 / (1 + x.exp())

    report = whynan.explain(sigmoid, torch.tensor([100.0]))
    assert report.verdict == "clean"
    assert report.absorbed_count == 1


def test_the_rounding_of_what_reads_a_right_infinity_is_none() -> None:
    def left_out(x: Tensor) -> Tensor:
        return torch.logsumexp(x + (x < 1).float().log(), -1)

    x = torch.tensor([0.0, -19.5, 30.0])
    assert left_out(x) == 0 != left_out(x.double())
    report = whynan.explain(left_out, x)
    assert (report.verdict, report.absorbed_count) == ("clean", 1)


def test_a_wrong_value_that_goes_nowhere_is_none() -> None:
    def target(x: Tensor) -> Tensor:
        half_norm(x)
        return x

    report = whynan.explain(target, LARGE)
    assert (report.verdict, report.absorbed_count) == ("clean", 1)


INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "an index": lambda x: x.argmax(),
    "a boolean": lambda x: x > 0.0,
    "an integer": lambda x: x.long(),
    "a rank": lambda x: x.argsort(),
    "a count": lambda x: (x < 10.0).sum(),
}


@pytest.mark.parametrize("way", INTEGERS)
def test_a_nan_that_became_an_integer_is_damage(way: str) -> None:
    report = whynan.explain(lambda x: INTEGERS[way](x.sqrt()), torch.tensor([1.0, -1.0, 4.0]))
    assert report.verdict == "damaged"
    (finding,) = report.damaging
    assert (finding.op, finding.element.index) == ("aten.sqrt.default", (1,))


def test_of_a_row_of_nothing_but_nan_the_index_is_damage_too() -> None:
    report = whynan.explain(lambda x: x.sqrt().argmax(), torch.tensor([-1.0, -1.0, -4.0]))
    assert report.verdict == "damaged"
    assert "argmax makes 0 of NaN" in [link.summary for link in report.damaging[0].chain]
    assert "made of NaN" in str(report)
    assert "float64" not in str(report)


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(),
    "topk": lambda x: x.topk(2).indices,
    "sort": lambda x: x.sort(descending=True).indices,
    "searchsorted": lambda x: torch.bucketize(x, torch.tensor([1.0, 5.0, 100.0])),
}


@pytest.mark.parametrize("way", ORDERS)
def test_an_index_that_float64_has_too_is_none(way: str) -> None:
    report = whynan.explain(lambda x: ORDERS[way](x.exp()), torch.tensor([2.0, 100.0, 1.0]))
    assert (report.verdict, report.absorbed_count) == ("clean", 1)


@pytest.mark.parametrize("way", ["argmax", "topk", "sort"])
def test_an_index_that_float64_has_not_is_damage(way: str) -> None:
    report = whynan.explain(lambda x: ORDERS[way](x.exp()), torch.tensor([100.0, 200.0, 1.0]))
    assert report.verdict == "damaged"
    assert "not what float64 would have given" in str(report)


def test_an_integer_made_of_an_infinity_is_damage() -> None:
    report = whynan.explain(lambda x: x.exp().long(), torch.tensor([100.0, 1.0]))
    assert report.verdict == "damaged"
    assert "made of Inf" in str(report)


def test_gathering_by_an_index_from_a_nan_is_damage() -> None:
    def target(x: Tensor) -> Tensor:
        return torch.arange(3.0)[x.sqrt().argmax()]

    assert whynan.explain(target, torch.tensor([1.0, -1.0, 4.0])).verdict == "damaged"


def test_a_mask_from_asking_is_none() -> None:
    def target(x: Tensor) -> Tensor:
        roots = x.sqrt()
        return torch.where(roots.isnan(), torch.zeros(3), roots)

    assert whynan.explain(target, torch.tensor([1.0, -1.0, 4.0])).verdict == "clean"


def test_clipping_by_a_norm_that_overflowed_is_damage() -> None:
    weight = torch.ones(1, dtype=torch.float16, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        (weight * 1000.0).sum().backward()
        assert weight.grad is not None
        norm = weight.grad.square().sum().sqrt()
        weight.grad.mul_(1.0 / norm)
        optimizer.step()

    with whynan.trace() as trace:
        work()
    assert weight.tolist() == [1.0]
    assert trace.report.verdict == "damaged"
    assert [(f.birth, f.op, f.rule) for f in trace.report.damaging] == [
        ("overflow", "aten.pow.Tensor_Scalar", "WN701"),
        (None, "aten.mul_.Tensor", "WN714"),
    ]


def test_clipping_by_foreach_with_a_norm_that_overflowed_is_damage() -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def work() -> None:
        model(torch.ones(3, 4) * 1e15).pow(2).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    report = traced(work)
    assert report.verdict == "damaged"
    first = report.damaging[0]
    # the norm and the scaling by it stand on one line: what was done there, and what it came of
    assert (first.op, first.rule, "WN701" in first.matched) == ("aten._foreach_mul_.Tensor", "WN714", True)


def test_a_second_moment_that_overflowed_freezes_its_weight() -> None:
    for foreach in (False, True):
        weight = torch.tensor([1.0, 2.0], requires_grad=True)
        optimizer = torch.optim.Adam([weight], lr=0.1, foreach=foreach)

        def work(weight: torch.Tensor = weight, optimizer: torch.optim.Adam = optimizer) -> None:
            for _ in range(2):
                optimizer.zero_grad()
                (weight * torch.tensor([1.0, 1e22])).sum().backward()
                optimizer.step()

        report = traced(work)
        assert report.verdict == "damaged"
        assert ("parameter", 1) in {(r.kind, r.bad) for r in report.damaging[0].reaches}


def test_windows_that_overlap_add_up_what_they_carry() -> None:
    def program() -> Tensor:
        window = torch.hann_window(8)
        spec = torch.stft(torch.zeros(64), 8, 2, window=window, return_complex=True)
        return torch.istft(spec / spec.abs(), 8, 2, window=window)

    (finding,) = whynan.explain(program).findings
    assert finding.site is not None
    assert finding.site.code == "spec / spec.abs()"


@pytest.mark.parametrize(
    "ask",
    [
        lambda a: torch.isclose(a, a, equal_nan=True).all().item(),
        lambda a: torch.allclose(a, a, equal_nan=True),
        lambda a: torch.testing.assert_close(a, a, equal_nan=True),
    ],
    ids=["isclose", "allclose", "assert_close"],
)
def test_what_a_comparison_of_torchs_bears_and_asks_is_its_own_affair(ask: Callable[[Tensor], object]) -> None:
    infinite = torch.tensor([float("inf"), 1.0, float("nan")])
    report = traced(lambda: ask(infinite))
    assert (report.verdict, report.damaging) == ("clean", ())


def test_what_the_program_asks_of_a_nan_is_wrong() -> None:
    infinite = torch.tensor([float("inf"), 1.0])

    def work() -> None:
        apart = infinite - infinite
        (apart <= 1).tolist()

    (finding,) = traced(work).damaging
    assert (finding.op, finding.birth) == ("aten.sub.Tensor", "invalid")
