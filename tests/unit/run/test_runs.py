"""From a trace to a report: versions, sources, allowances, and what is left when whynan itself fails."""

from __future__ import annotations

import pytest

from tests.unit.analysis.facts import birth, sink, trace
from whynan.records import Report
from whynan.run.guarded_capture import GuardedCapture
from whynan.run.pipeline import report_of
from whynan.run.suppressions import Allowance
from whynan.run.versions import versions


def made(*births: object, allowances: list[Allowance] | None = None, exception: str | None = None) -> Report:
    """The report of births that all reach the loss."""
    found = trace(list(births), [sink(*(b.label for b in births))])  # type: ignore[attr-defined, arg-type]
    return report_of(found, command="trace", flags={}, device="cpu", allowances=allowances or [], exception=exception)


def test_an_error_makes_the_exit_status() -> None:
    report = made(birth(1))
    assert (report.verdict, report.run.exit_status.script, report.run.exit_status.whynan) == ("nonfinite", 0, 1)


def test_an_exception_of_the_program_is_its_own_status() -> None:
    assert made(birth(1), exception="KeyError: 'x'").run.exit_status.script == 1


def test_an_allowance_excuses_what_was_born_in_its_scope_only() -> None:
    allowances = [Allowance("WN000", "known")]
    report = made(birth(1, line=1, scope=(0,)), birth(2, line=2), allowances=allowances)
    assert [f.site.line for f in report.findings if f.site] == [2]
    assert report.verdict == "nonfinite"
    assert "WN000 unexplained at net.py:1 is allowed: known" in report.coverage.notes
    assert report.unused_allows == ()


def test_where_all_is_excused_the_verdict_is_clean_and_the_unused_are_named() -> None:
    allowances = [Allowance("WN000", "known"), Allowance("WN5", "never")]
    report = made(birth(1, scope=(0, 1)), allowances=allowances)
    assert (report.verdict, report.unused_allows) == ("clean", ("WN5",))


def test_the_versions_of_what_is_loaded_are_told() -> None:
    found = versions()
    assert {"whynan", "python"} <= set(found)


def test_an_error_while_judging_leaves_a_report_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)
    monkeypatch.setattr("whynan.run.pipeline.judge_births", lambda _: 1 / 0)
    with pytest.warns(RuntimeWarning, match="an error of its own"):
        report = made(birth(1), exception="KeyError")
    assert (report.verdict, report.run.exception) == ("inconclusive", "KeyError")
    assert any("error of its own" in note for note in report.coverage.notes)


def test_a_region_that_cannot_be_watched_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)

    def never() -> object:
        raise OSError("no")

    region = GuardedCapture(never)  # type: ignore[arg-type]
    with pytest.warns(RuntimeWarning, match="an error of its own"):
        region.start(())
    region.notify(lambda capture: capture.flags())
    with region.scope(0):
        pass
    left = region.stop(None, None, None)
    assert (left.failed, left.births) == (True, [])
