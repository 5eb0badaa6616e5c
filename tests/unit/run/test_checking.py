"""The options of a run that could not be honoured are refused before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.config import Options
from whynan.errors import UsageError
from whynan.run.options import check


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names are relative, so that messages are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_can_be_honoured_passes_and_a_trace_has_its_folder(here: Path) -> None:
    check(Options(json="r.json", trace="new/trace", allow=("WN5", "log-of-zero", "WN000"), pdb=True))
    check(Options(mode="watch", sync="deferred"))
    assert [p.name for p in here.rglob("*")] == ["new", "trace"]


REFUSED: dict[str, dict[str, object]] = {
    "nowhere to write": {"json": "nowhere/r.json"},
    "no baseline": {"baseline": "nothing.json"},
    "no such rule": {"allow": ("WN999",)},
    "no such name": {"allow": ("square-of-nothing",)},
    "a folder that holds something": {"trace": "folder"},
    "a file for a folder": {"trace": "file"},
    "a debugger where nothing stops": {"pdb": True, "on_nonfinite": "continue"},
    "proofs and none": {"rerun": True, "prove": False},
    "reading later where nothing is read": {"sync": "deferred", "mode": "trace"},
    "a step that is found too late to be left out": {"sync": "deferred", "on_nonfinite": "skip"},
    "a step that is found too late to be raised": {"sync": "deferred", "on_nonfinite": "raise"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_is_refused(case: str, here: Path, snapshot: SnapshotAssertion) -> None:
    (here / "folder").mkdir()
    (here / "folder" / "file").write_text("")
    (here / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        check(Options(**REFUSED[case]))  # type: ignore[arg-type]
    assert str(caught.value).replace(str(here), "HERE") == snapshot


def test_a_refused_run_leaves_no_folder(here: Path) -> None:
    with pytest.raises(UsageError):
        check(Options(trace="new", json="nowhere/r.json"))
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("option", ["json", "trace", "baseline"])
def test_where_the_directory_is_gone_only_whole_paths_count(
    option: str, here: Path, snapshot: SnapshotAssertion
) -> None:
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    with pytest.raises(UsageError) as caught:
        check(Options(**{option: "relative"}))  # type: ignore[arg-type]
    assert str(caught.value) == snapshot
    check(Options(json=str(here / "r.json"), trace=str(here / "trace")))
