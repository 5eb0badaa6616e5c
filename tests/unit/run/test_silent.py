"""Silent damage in a report: what is told of it, when it is not, and how it is excused."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

from tests.unit.analysis.facts import birth, sink, site, trace
from whynan.records import Damage, DamageKind, Element, Operand, Report
from whynan.report.json import to_json
from whynan.rules.catalogue import readings, rules
from whynan.run.pipeline import report_of
from whynan.run.suppressions import Allowance, Baseline, comments_of
from whynan.traces import Event, Silent, Trace

NUMBERS = {"eps": 1e-4, "threshold": 1e-4, "worst": -2.0}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Comments are read from the files of the working directory."""
    monkeypatch.chdir(tmp_path)
    comments_of.cache_clear()
    linecache.clearcache()
    return tmp_path


def silent(line: int = 1, kind: DamageKind = "overwritten", **more: Any) -> Silent:
    """A guard that writes over 2 of 4 elements."""
    was = Operand(name="self", expression="x", index=(0,), value=-2.0, dtype="float32", origin="live")
    element = Element(index=(0,), shape=(4,), dtype="float32", value=1e-4, count=2, total=4, operands=(was,))
    event = Event(line, "aten.index_put_.default", "forward", site(line))
    return Silent(event, element, Damage(kind=kind, concerned=2, total=4, numbers=NUMBERS), **more)


def told(made: Trace, *allowed: str, **more: Any) -> Report:
    """The report of a trace."""
    more.setdefault("allowances", [Allowance(pattern, "meant") for pattern in allowed])
    return report_of(made, command="x", flags={}, device="cpu", exception=None, **more)


def test_it_is_a_warning_of_its_rule_without_a_birth() -> None:
    report = told(trace([], [], silent=[silent()]))
    (found,) = report.damaging
    assert (found.rule, found.severity, found.fate, found.birth) == ("WN118", "warning", "damaging", None)
    assert report.verdict == "damaged"
    assert report.run.exit_status.whynan == 0


def test_what_happens_at_one_place_is_told_once() -> None:
    again = [silent(modules={"a": None}), silent(modules={"b": None}, occurrences=3), silent(line=2)]
    first, second = told(trace([], [], silent=again)).damaging
    assert (first.occurrences, first.modules) == (4, ("a", "b"))
    assert (second.occurrences, second.site) == (1, site(2))


def test_what_no_rule_knows_is_not_told() -> None:
    unknown = silent()
    unknown.element = unknown.element.model_copy(update={"operands": ()})
    report = told(trace([], [], silent=[unknown]))
    assert report.damaging == ()
    assert report.verdict == "clean"


def test_an_error_leaves_it_out_and_a_warning_does_not() -> None:
    error = told(trace([birth(1, line=7)], [sink(1)], silent=[silent()]))
    assert (len(error.findings), error.damaging) == (1, ())
    observed = sink(1, kind="observed", fatal=False)
    warning = told(trace([birth(1, line=7)], [observed, sink()], silent=[silent()]))
    assert (len(warning.findings), len(warning.damaging)) == (1, 1)


def test_a_birth_that_did_damage_at_the_same_expression_is_the_same_finding() -> None:
    born = birth(1, kind="overflow", value=float("inf"))
    made = trace([born], [sink(1, kind="parameter", name="w", damage=True)], silent=[silent(), silent(line=2)])
    first, second = told(made).damaging
    assert (first.rule, first.reaches[0].name) == ("WN118", "w")
    assert first.matched
    assert second.matched == ()


@pytest.mark.parametrize("pattern", ["WN118", "WN1", "guard-overwrites-values"])
def test_an_allowance_in_whose_scope_it_happened_excuses_it(pattern: str) -> None:
    made = trace([], [], silent=[silent(scope=(0,))])
    report = told(made, pattern)
    assert (report.damaging, report.verdict, report.unused_allows) == ((), "clean", ())
    outside = told(trace([], [], silent=[silent()]), pattern)
    assert (outside.verdict, outside.unused_allows) == ("damaged", (pattern,))


def test_a_comment_at_its_expression_excuses_it() -> None:
    Path("net.py").write_text("x[x < 1e-4] = 1e-4  # whynan: allow WN118 a floor\ny = 1\n", encoding="utf-8")
    report = told(trace([], [], silent=[silent(), silent(line=2)]))
    assert [f.site for f in report.damaging] == [site(2)]
    assert any("a floor" in note for note in report.coverage.notes)


def test_a_baseline_knows_it() -> None:
    made = trace([], [], silent=[silent()])
    Path("old.json").write_text(to_json(told(made)), encoding="utf-8")
    report = told(made, baseline=Baseline.read("old.json"))
    assert (report.damaging, report.verdict) == ((), "clean")


def test_a_rule_that_reads_says_where_it_is_live_and_no_other_does() -> None:
    assert {rule.code for rule in rules() if rule.reads} == {rule.code for rule in rules() if rule.modes}
    assert "WN118" in {rule.code for rule in rules() if rule.reads}


def test_what_is_allowed_everywhere_is_not_read() -> None:
    assert {"masks", "bounds", "parameters", "gradients", "ranges"} <= readings("trace")
    assert readings("trace") - readings("trace", ["WN118"]) == {"masks"}
    assert readings("trace") - readings("trace", ["eps-without-effect"]) == {"bounds"}
    assert readings("trace", ["WN"]) == frozenset()
