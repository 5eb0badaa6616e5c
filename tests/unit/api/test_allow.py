"""``allow``: what is meant, by code, by its start or by name; only inside the block; the unused are listed."""

from __future__ import annotations

import pytest
import torch

import whynan
from whynan.records import Report


def bad() -> None:
    torch.zeros(1).log().tolist()


def healthy() -> None:
    torch.ones(1).log().tolist()


@pytest.mark.parametrize("pattern", ["WN2", "WN201", "WN", "log-of-zero"])
def test_a_finding_is_excused_by_code_by_its_start_or_by_name(pattern: str) -> None:
    with whynan.trace() as trace, whynan.allow(pattern, reason="meant"):
        bad()
    report = trace.report
    assert report.verdict == "clean"
    assert report.findings == ()
    assert report.unused_allows == ()
    assert report.run.exit_status.whynan == 0
    assert any("WN201 log-of-zero" in note and note.endswith("is allowed: meant") for note in report.coverage.notes)


@pytest.mark.parametrize("pattern", ["WN3", "WN202", "log-of-negative"])
def test_another_rule_excuses_nothing_and_is_reported_as_unused(pattern: str) -> None:
    with whynan.trace() as trace, whynan.allow(pattern, reason="meant"):
        bad()
    assert trace.report.verdict == "nonfinite"
    assert trace.report.unused_allows == (pattern,)


@pytest.mark.parametrize("pattern", ["WN201", "log-of-zero", "WN206"])
def test_a_rule_of_the_operation_excuses_what_a_rule_of_its_surroundings_explains(pattern: str) -> None:
    with whynan.trace() as trace, whynan.allow(pattern, reason="meant"):
        torch.tensor([0.0, 200.0]).softmax(0).log().tolist()
    assert (trace.report.verdict, trace.report.unused_allows) == ("clean", ())
    assert any("WN206" in note and note.endswith("is allowed: meant") for note in trace.report.coverage.notes)


def test_it_holds_for_a_trace_inside_the_block() -> None:
    with whynan.allow("WN2", reason="meant"):
        report = whynan.explain(torch.log, torch.zeros(1))
    assert report.verdict == "clean"
    assert whynan.explain(torch.log, torch.zeros(1)).verdict == "nonfinite"


def test_before_and_after_the_block_nothing_is_excused() -> None:
    with whynan.trace() as trace:
        torch.zeros(1).log().tolist()
        with whynan.allow("WN2", reason="meant"):
            torch.zeros(2).log().tolist()
        torch.zeros(3).log().tolist()
    assert [f.element.shape for f in trace.report.findings] == [(1,), (3,)]
    assert trace.report.unused_allows == ()


def test_a_block_left_by_an_exception_is_left() -> None:
    with whynan.trace() as trace:
        with pytest.raises(ValueError, match="mine"), whynan.allow("WN2", reason="meant"):
            raise ValueError("mine")
        bad()
    assert trace.report.verdict == "nonfinite"
    assert trace.report.unused_allows == ("WN2",)


@pytest.mark.parametrize("inside", [0, 1, 2])
def test_one_execution_of_a_line_does_not_excuse_the_others(inside: int) -> None:
    with whynan.trace() as trace:
        for i in range(3):
            if i == inside:
                with whynan.allow("WN2", reason="meant"):
                    bad()
            else:
                bad()
    assert trace.report.verdict == "nonfinite"
    assert trace.report.unused_allows == ()
    assert sum(f.occurrences for f in trace.report.findings) == 2


def test_a_block_in_a_loop_is_used_if_any_round_used_it() -> None:
    def rounds(values: list[float]) -> Report:
        with whynan.trace() as trace:
            for value in values:
                with whynan.allow("WN2", reason="meant"):
                    torch.full((1,), value).log().tolist()
        return trace.report

    assert rounds([1.0, 0.0, 2.0]).unused_allows == ()
    assert rounds([1.0, 2.0, 3.0]).unused_allows == ("WN2",)


def test_inner_blocks_excuse_what_outer_ones_do_not() -> None:
    with whynan.trace() as trace, whynan.allow("WN3", reason="outer"), whynan.allow("WN2", reason="inner"):
        bad()
    assert trace.report.verdict == "clean"
    assert trace.report.unused_allows == ("WN3",)


def test_an_excuse_hides_no_other_error() -> None:
    with whynan.trace() as trace, whynan.allow("WN2", reason="meant"):
        bad()
        torch.full((1,), -1.0).sqrt().tolist()
    (finding,) = trace.report.findings
    assert finding.rule == "WN302"
    assert trace.report.verdict == "nonfinite"


def test_healthy_code_leaves_the_allowance_unused() -> None:
    with whynan.trace() as trace, whynan.allow("WN2", reason="meant"):
        healthy()
    assert trace.report.verdict == "clean"
    assert trace.report.unused_allows == ("WN2",)
