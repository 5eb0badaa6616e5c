"""The traces of several ranks on disk are one report: beside each other, in one folder, of a rank that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analysis.facts import trace
from tests.unit.traces.folders import recorded
from whynan.cli.main import main
from whynan.run.output.run_trace import report_of_directory
from whynan.run.ranks.folders import folders_of_ranks, report_of_ranks

HEALTHY = trace([], [])


def run_of(folder: Path, *numbers: int, bad: int = 1, killed: int = -1) -> Path:
    """The traces of some ranks, of which one found something and one was killed; gives that of rank 0."""
    for number in numbers:
        path = folder / (f"t.rank{number}" if number else "t")
        if number == bad:
            recorded(path, segments=1, finished=number != killed)
        else:
            recorded(path, facts=HEALTHY, segments=1, finished=number != killed)
    return folder / "t"


@pytest.mark.parametrize("within", [False, True])
def test_the_traces_of_ranks_are_one_report(tmp_path: Path, within: bool) -> None:
    first = run_of(tmp_path, 0, 1, 2)
    found = folders_of_ranks(str(tmp_path if within else first))
    assert sorted(found) == [0, 1, 2]
    report = report_of_ranks(found)
    assert {finding.ranks for finding in report.findings} == {(1,)}
    assert [(one.rank, one.end) for one in report.run.ranks] == [(0, "ended"), (1, "ended"), (2, "ended")]
    assert report.coverage.events == sum(report_of_directory(folder).coverage.events for folder in found.values())
    assert report.verdict == "nonfinite"


def test_equal_findings_are_told_once_and_a_rank_without_a_trace_is_missing(tmp_path: Path) -> None:
    run_of(tmp_path, 0, 3, bad=3)
    report = report_of_ranks(folders_of_ranks(str(tmp_path)))
    assert [one.end for one in report.run.ranks] == ["ended", "missing", "missing", "ended"]
    healthy = report_of_ranks(folders_of_ranks(str(run_of(tmp_path / "other", 0, 2, bad=-1))))
    assert healthy.verdict != "nonfinite"
    assert report.coverage.notes_of("ranks_missing")


def test_a_rank_that_was_killed_is_read_as_far_as_it_came(tmp_path: Path) -> None:
    report = report_of_ranks(folders_of_ranks(str(run_of(tmp_path, 0, 1, killed=1))))
    assert [one.end for one in report.run.ranks] == ["ended", "terminated"]
    assert report.findings[0].rank == 1


def test_one_trace_and_those_of_several_runs_are_no_ranks(tmp_path: Path) -> None:
    alone = run_of(tmp_path, 0, bad=0)
    assert folders_of_ranks(str(alone)) == {}
    assert folders_of_ranks(str(tmp_path)) == {0: str(alone)}
    recorded(tmp_path / "u")
    assert folders_of_ranks(str(tmp_path)) == {}
    second = run_of(tmp_path, 1)
    # the trace of one rank is that of itself alone, where it is named
    assert folders_of_ranks(str(second.with_name("t.rank1"))) == {}


def test_the_command_tells_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path, 0, 1)
    assert main(["report", str(tmp_path), "--json", str(tmp_path / "r.json")]) == 1
    assert "on rank 1" in capsys.readouterr().out
    assert (tmp_path / "r.json").exists()
    (tmp_path / "t.rank1" / "run.json").write_text("{", encoding="utf-8")
    assert main(["report", str(tmp_path)]) == 2
    assert "t.rank1" in capsys.readouterr().err


def test_many_ranks(tmp_path: Path) -> None:
    run_of(tmp_path, *range(64), bad=7)
    report = report_of_ranks(folders_of_ranks(str(tmp_path)))
    assert len(report.run.ranks) == 64
    assert report.findings[0].ranks == (7,)
