"""Wrong input is refused at the door: one line that says what, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

import whynan
from whynan.errors import WhynanError


def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    return x * factor


def _trace_in_trace() -> None:
    with whynan.trace(), whynan.trace():
        pass


def _explain_in_trace() -> None:
    with whynan.trace():
        whynan.explain(scaled, torch.ones(2))


def _explain_in_explain() -> None:
    whynan.explain(lambda: whynan.explain(scaled, torch.ones(2)))


def _trace_again() -> None:
    trace = whynan.trace()
    with trace:
        pass
    with trace:
        pass


def _report_too_early() -> None:
    with whynan.trace() as trace:
        trace.report  # noqa: B018


REFUSED: dict[str, Callable[[], Any]] = {
    "a number": lambda: whynan.explain(3),
    "a result instead of a model": lambda: whynan.explain(nn.Linear(2, 2)(torch.ones(2)), torch.ones(2)),
    "a path as text": lambda: whynan.explain("model.onnx", torch.ones(2)),
    "a path": lambda: whynan.explain(Path("model.onnx"), torch.ones(2)),
    "an input that is missing": lambda: whynan.explain(scaled),
    "an input too many": lambda: whynan.explain(scaled, torch.ones(2), 1.0, 2.0),
    "an input of another name": lambda: whynan.explain(scaled, torch.ones(2), by=3.0),
    "a module without its input": lambda: whynan.explain(nn.Linear(2, 2)),
    "a module on the meta device": lambda: whynan.explain(nn.Linear(2, 2, device="meta"), torch.ones(2)),
    "a buffer on the meta device": lambda: whynan.explain(_with_meta_buffer(), torch.ones(2)),
    "an input on the meta device": lambda: whynan.explain(scaled, torch.ones(2, device="meta")),
    "an inner input on the meta device": lambda: whynan.explain(dict, batch={"ids": [torch.ones(1, device="meta")]}),
    "a negative memory": lambda: whynan.explain(scaled, torch.ones(2), memory=-1),
    "a memory in words": lambda: whynan.trace(memory="plenty"),
    "ranges that are no switch": lambda: whynan.trace(ranges=3),  # type: ignore[arg-type]
    "a trace in a trace": _trace_in_trace,
    "explain in a trace": _explain_in_trace,
    "explain in explain": _explain_in_explain,
    "a trace used twice": _trace_again,
    "a report that is not there yet": _report_too_early,
    "allow of everything": lambda: whynan.allow("", reason="all of it"),
    "allow of what no rule is called": lambda: whynan.allow("Not A Rule", reason="because"),
    "allow of a number": lambda: whynan.allow(5, reason="because"),  # type: ignore[arg-type]
    "allow without a reason": lambda: whynan.allow("WN5", reason=""),
}


def _with_meta_buffer() -> nn.Module:
    module = nn.Linear(2, 2)
    module.register_buffer("table", torch.ones(2, device="meta"))
    return module


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_one_line(case: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(WhynanError) as refusal:
        REFUSED[case]()
    text = str(refusal.value)
    assert "\n" not in text
    assert ": " in text
    assert text == snapshot


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_leaves_nothing_behind(case: str) -> None:
    with pytest.raises(WhynanError):
        REFUSED[case]()
    report = whynan.explain(torch.log, torch.zeros(1))
    assert report.verdict == "nonfinite"
    assert report.unused_allows == ()


def test_a_target_that_is_refused_is_not_called() -> None:
    calls: list[Tensor] = []

    def target(x: Tensor) -> None:
        calls.append(x)

    with pytest.raises(WhynanError):
        whynan.explain(target, torch.ones(1), memory="plenty")
    with pytest.raises(WhynanError):
        whynan.explain(target, torch.ones(1, device="meta"))
    assert calls == []


def test_an_argument_that_trace_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError, match="rangs"):
        whynan.trace(rangs=True)  # type: ignore[call-arg]


def test_a_target_without_a_signature_is_called_as_it_is() -> None:
    report = whynan.explain(torch.log, torch.zeros(1))
    assert [f.op for f in report.findings] == ["aten.log.default"]


def test_a_keyword_of_the_targets_own_is_handed_on() -> None:
    report = whynan.explain(scaled, x=torch.ones(1), factor=float("inf"))
    assert report.verdict == "clean"
    assert whynan.explain(scaled, x=torch.zeros(1), factor=float("inf")).verdict == "nonfinite"
