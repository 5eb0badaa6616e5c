"""An earlier report whose findings are known, wherever in the file they have moved."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.analysis.facts import birth, sink, trace
from tests.unit.report.programs import finding, report, site
from whynan.errors import UsageError
from whynan.records import Member, Report
from whynan.report.json import to_json
from whynan.run.pipeline import report_of
from whynan.run.suppressions import Baseline, comments_of


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names are relative, so that messages are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    comments_of.cache_clear()
    linecache.clearcache()
    return tmp_path


def baseline(*known: object) -> Baseline:
    """A saved report with these findings."""
    Path("old.json").write_text(to_json(report(*known)), encoding="utf-8")  # type: ignore[arg-type]
    return Baseline.read("old.json")


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"step": 99, "message": "other values", "occurrences": 5}, True),
        (
            {
                "site": site(20, "counts / counts.sum(dim=-1, keepdim=True)", function="entropy").model_copy(
                    update={"line": 77, "end_line": 77}
                )
            },
            True,
        ),
        ({"rule": "WN102"}, False),
        ({"phase": "backward"}, False),
        ({"op": "aten.div.Scalar"}, False),
        ({"site": site(12, "torch.atan2(imag, real)", function="entropy")}, False),
        ({"site": site(20, "counts / counts.sum(dim=-1, keepdim=True)", function="other")}, False),
        ({"site": None}, False),
    ],
)
def test_a_finding_is_known_by_what_it_is_and_not_by_where_it_stands(change: dict[str, object], known: bool) -> None:
    assert baseline(finding()).knows(finding(**change)) is known


def test_what_was_damaging_is_known_too() -> None:
    Path("old.json").write_text(to_json(report(damaging=(finding(fate="damaging"),))), encoding="utf-8")
    assert Baseline.read("old.json").knows(finding())


def test_each_birth_of_one_cause_is_known_by_itself() -> None:
    other = site(12, "torch.atan2(imag, real)")
    member = Member(site=other, phase="backward", op="aten.sqrt.default", rule="WN301", count=2)
    known = baseline(finding(also=(member,)))
    assert known.knows(finding())
    alone = finding(rule="WN301", phase="backward", op="aten.sqrt.default", site=other)
    assert known.knows(alone)
    assert not known.knows(alone.model_copy(update={"rule": "WN302"}))
    assert not baseline(finding()).knows(alone)


def made(known: Baseline | None) -> Report:
    found = trace([birth(1), birth(2, line=2, op="aten.sqrt.default")], [sink(1, 2)])
    return report_of(found, command="x", flags={}, device="cpu", allowances=[], exception=None, baseline=known)


def test_what_is_known_is_no_error_and_is_said() -> None:
    first = made(None)
    assert [f.severity for f in first.findings] == ["error", "error"]
    Path("old.json").write_text(to_json(first.model_copy(update={"findings": first.findings[:1]})))
    second = made(Baseline.read("old.json"))
    assert len(second.findings) == 1
    assert second.verdict == "nonfinite"
    assert second.coverage.notes == ("WN000 unexplained at net.py:1 is allowed: known from old.json",)
    Path("old.json").write_text(to_json(first))
    third = made(Baseline.read("old.json"))
    assert (third.verdict, third.findings, third.run.exit_status.whynan) == ("clean", (), 0)


REFUSED = {"nothing": "nothing.json", "a folder": "folder", "a pipe": "pipe", "no report": "text", "another": "other"}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_report_is_refused(case: str, snapshot: SnapshotAssertion) -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("text").write_text("why is it NaN?")
    Path("other").write_text('{"schema": "whynan.checkpoint/1"}')
    with pytest.raises(UsageError) as caught:
        Baseline.read(REFUSED[case])
    assert str(caught.value) == snapshot
