"""The traces of several ranks on disk are one report: beside each other, in one folder, of a rank that was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.analysis.facts import trace
from tests.unit.traces.folders import recorded
from whynan.cli.main import main
from whynan.errors import UsageError
from whynan.run.output.run_trace import report_of_directory
from whynan.run.ranks.folders import RankFolders, folders_of_ranks

HEALTHY = trace([], [])


def run_of(folder: Path, *numbers: int, world: int = 0, bad: int = 1, killed: int = -1, name: str = "t") -> Path:
    """The traces of some ranks, of which one found something and one was killed; gives that of rank 0."""
    for number in numbers:
        path = folder / (f"{name}.rank{number}" if number else name)
        if number == bad:
            recorded(path, segments=1, finished=number != killed)
        else:
            recorded(path, facts=HEALTHY, segments=1, finished=number != killed)
        told = json.loads((path / "run.json").read_text("utf-8"))
        told["options"] |= {"rank": number, "ranks": world or max(numbers) + 1}
        (path / "run.json").write_text(json.dumps(told), encoding="utf-8")
    return folder / name


def ranks_in(path: Path) -> RankFolders:
    """The traces of ranks, of which there are some."""
    found = folders_of_ranks(str(path))
    assert found is not None
    return found


@pytest.mark.parametrize("within", [False, True])
def test_the_traces_of_ranks_are_one_report(tmp_path: Path, within: bool) -> None:
    first = run_of(tmp_path, 0, 1, 2)
    found = ranks_in(tmp_path if within else first)
    assert sorted(found.folders) == [0, 1, 2]
    report = found.report()
    assert {finding.ranks for finding in report.findings} == {(1,)}
    assert [(one.rank, one.end) for one in report.run.ranks] == [(0, "ended"), (1, "ended"), (2, "ended")]
    events = sum(report_of_directory(folder).coverage.events for folder in found.folders.values())
    assert report.coverage.events == events
    assert report.verdict == "nonfinite"


def test_a_rank_without_a_trace_is_missing(tmp_path: Path) -> None:
    run_of(tmp_path, 0, 3, world=5, bad=3)
    report = ranks_in(tmp_path).report()
    assert [one.end for one in report.run.ranks] == ["ended", "missing", "missing", "ended", "missing"]
    assert report.coverage.notes_of("ranks_missing")


def test_one_that_cannot_be_read_is_missing_too(tmp_path: Path) -> None:
    first = run_of(tmp_path, 0, 1, 2)
    (tmp_path / "t.rank1" / "facts.json").write_text("{", encoding="utf-8")
    assert [one.end for one in ranks_in(first).report().run.ranks] == ["ended", "missing", "ended"]
    for number in ("t", "t.rank2"):
        (tmp_path / number / "facts.json").write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="none of the 3 traces can be read"):
        ranks_in(first).report()


def test_a_rank_that_was_killed_is_read_as_far_as_it_came(tmp_path: Path) -> None:
    report = ranks_in(run_of(tmp_path, 0, 1, killed=1)).report()
    assert [one.end for one in report.run.ranks] == ["ended", "terminated"]
    assert report.findings[0].rank == 1


@pytest.mark.parametrize("killed", [0, 1])
def test_where_a_rank_left_no_end_nothing_is_clean(tmp_path: Path, killed: int) -> None:
    report = ranks_in(run_of(tmp_path, 0, 1, bad=-1, killed=killed)).report()
    assert report.verdict == "inconclusive"
    assert [one.verdict for one in report.run.ranks] == ["inconclusive" if n == killed else "clean" for n in (0, 1)]
    (note,) = report.coverage.notes_of("rank_without_end")
    assert note.values["rank"] == killed
    assert not report.coverage.notes_of("unfinished")
    assert ranks_in(run_of(tmp_path / "whole", 0, 1, bad=-1)).report().verdict == "clean"


def test_what_is_of_no_ranks_or_of_others_is_left_out(tmp_path: Path) -> None:
    recorded(alone := tmp_path / "alone")
    assert folders_of_ranks(str(alone)) is None
    assert folders_of_ranks(str(tmp_path)) is None
    first = run_of(tmp_path / "a", 0, 1)
    # of an earlier run, of more ranks
    run_of(tmp_path / "a", 2, world=3)
    assert sorted(ranks_in(first).folders) == [0, 1]
    with pytest.raises(UsageError, match="traces of several runs"):
        folders_of_ranks(str(tmp_path / "a"))
    assert folders_of_ranks(str(tmp_path / "a" / "t.rank1")) is None
    run_of(tmp_path / "b", 0, world=1 << 20)
    assert folders_of_ranks(str(tmp_path / "b")) is None


def test_a_folder_around_that_cannot_be_listed_hides_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_of(tmp_path, 0, 1)
    monkeypatch.setattr("whynan.run.ranks.folders.os.scandir", refused)
    assert folders_of_ranks(str(first)) is None


def refused(path: str) -> None:
    """As of a folder that may be gone through and not listed."""
    raise PermissionError(path)


def test_the_command_tells_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path, 0, 1)
    assert main(["report", str(tmp_path), "--json", str(tmp_path / "r.json")]) == 1
    assert "on rank 1" in capsys.readouterr().out
    assert (tmp_path / "r.json").exists()


def test_many_ranks(tmp_path: Path) -> None:
    run_of(tmp_path, *range(64), bad=7)
    report = ranks_in(tmp_path).report()
    assert len(report.run.ranks) == 64
    assert report.findings[0].ranks == (7,)
