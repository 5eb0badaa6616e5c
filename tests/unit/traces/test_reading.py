"""Reading a trace: what is whole is read, what a killed run has left too, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.analysis.facts import trace
from tests.unit.traces.folders import FOUND, RUN, document, events, recorded
from tests.unit.traces.hostile import HARMS
from tests.unit.traces.ranges import RANGE
from tests.unit.traces.strategies import same
from whynan.errors import UsageError
from whynan.traces import format as layout
from whynan.traces.format import json_of
from whynan.traces.reader import Recorded, read_trace
from whynan.traces.writer import TraceWriter


def read_wholly(directory: str | Path) -> Recorded:
    """Read a trace with every event and every table."""
    found = read_trace(directory)
    for _ in found.events:
        pass
    assert all(isinstance(getattr(found.events, table), tuple) for table in ("operators", "nodes", "modules", "sites"))
    return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders are named relative to the working directory, so that messages are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_trace_is_read_as_it_was_written(here: Path) -> None:
    recorded(here / "t")
    found = read_wholly("t")
    assert same(found.trace) == same(FOUND)
    assert (found.run.exit_status.script, found.run.exit_status.whynan) == (0, 1)
    assert [(m.pattern, m.reason) for m in found.allowances] == [("WN5", "known")]
    assert found.sources == {"net.py": "0" * 64}
    assert found.options == {"memory": None}
    assert found.ended is not None


def test_every_event_is_there_with_its_names(here: Path) -> None:
    recorded(here / "t")
    events = read_wholly("t").events
    assert len(events) == 6
    assert np.concatenate(list(events))["ordinal"].tolist() == [0, 1, 2, 3, 4, 5]
    event = next(iter(events))[0]
    assert events.operators[event["operator"]] == "aten.log.default"
    assert events.nodes[event["node"]] == "LogBackward0"
    assert events.modules[event["module"]] == "net.head"
    line = events.sites[event["site"]]
    assert line is not None
    assert line.site is not None
    assert (line.site.file, line.site.line) == ("net.py", 1)
    assert layout.PHASES[event["phase"]] == "backward"


@pytest.mark.parametrize("kind", HARMS)
def test_what_is_wrong_is_refused_with_one_line(kind: str, here: Path, snapshot: SnapshotAssertion) -> None:
    recorded(here / "t")
    HARMS[kind](here / "t")
    with pytest.raises(UsageError) as refused:
        read_wholly("t")
    assert str(refused.value) == snapshot
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600


@pytest.mark.process
def test_hostile_files_are_refused_before_they_take_memory(here: Path) -> None:
    kinds = [k for k in HARMS if "too long" in k or "2**60" in k or "too many" in k or "in depth" in k]
    assert len(kinds) > 5
    for number, kind in enumerate(kinds):
        (here / f"{number}").mkdir()
        recorded(here / f"{number}" / "t")
        HARMS[kind](here / f"{number}" / "t")
    program = (
        "import resource, sys\n"
        "import numpy, pydantic\n"
        "from tests.unit.traces.test_reading import read_wholly\n"
        "from whynan.errors import UsageError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)\n"
        "for number in range(int(sys.argv[1])):\n"
        "    try:\n"
        "        read_wholly(f'{number}/t')\n"
        "    except UsageError:\n"
        "        print('refused')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", program, str(len(kinds))]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.stdout.split() == ["refused"] * len(kinds), result.stderr


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_what_is_no_folder_is_refused(name: str, here: Path, snapshot: SnapshotAssertion) -> None:
    (here / "file").write_text("{}")
    with pytest.raises(UsageError) as refused:
        read_trace(name)
    assert str(refused.value) == snapshot


def test_the_folder_itself_may_be_behind_a_link(here: Path) -> None:
    recorded(here / "t")
    (here / "latest").symlink_to("t")
    assert len(read_wholly("latest").events) == 6


def test_files_that_no_format_names_are_none_of_its_business(here: Path) -> None:
    recorded(here / "t")
    (here / "t" / "notes.txt").write_text("learning rate 3e-4")
    assert len(read_wholly("t").events) == 6


# -- what a killed run leaves ----------------------------------------------------------------------------------------


def test_a_run_that_did_not_end_is_read_up_to_where_it_goes(here: Path, snapshot: SnapshotAssertion) -> None:
    recorded(here / "t", finished=False, segments=4)
    found = read_wholly("t")
    assert found.ended is None
    assert [b.label for b in found.trace.births] == [1, 2]
    assert found.trace.coverage.events == 12
    assert found.trace.coverage.notes == snapshot


def test_facts_may_know_of_more_events_than_there_are_segments(here: Path) -> None:
    recorded(here / "t", finished=False, segments=1)
    assert read_wholly("t").trace.coverage.events == 9


def test_without_facts_nothing_is_known_and_the_trace_says_so(here: Path, snapshot: SnapshotAssertion) -> None:
    recorded(here / "t", finished=False, facts=None)
    found = read_wholly("t")
    assert (found.trace.births, found.trace.failed, found.trace.coverage.events) == ([], True, 6)
    assert found.trace.coverage.notes == snapshot


def test_a_run_killed_before_its_first_event_is_a_trace_too(here: Path) -> None:
    TraceWriter(here / "t").begin(RUN, {})
    found = read_trace("t")
    assert (len(found.events), found.events.operators) == (0, ())


def test_files_that_are_not_whole_yet_are_passed_over(here: Path) -> None:
    recorded(here / "t", finished=False)
    for name in ("run.json.7.tmp", "facts.json.7.tmp", "events/00000002.npy.7.tmp"):
        (here / "t" / name).write_bytes(b"\x93NUM")
    assert len(read_wholly("t").events) == 6


def test_a_line_that_a_killed_run_has_torn_is_passed_over(here: Path) -> None:
    recorded(here / "t", finished=False)
    for name in (*layout.TABLES, layout.RANGES):
        with (here / "t" / name).open("ab") as file:
            file.write(b'{"site": {"fi')
    found = read_wholly("t")
    assert found.events.operators == ("aten.log.default",)


def test_ranges_behind_those_that_the_facts_know_of_are_passed_over(here: Path) -> None:
    writer = recorded(here / "t", finished=False, facts=None)
    writer.append(layout.RANGES, [json_of(RANGE)] * 3)
    writer.facts(trace([], []), {}, 2)
    assert read_wholly("t").trace.ranges == (RANGE, RANGE)


# -- what a reader costs ---------------------------------------------------------------------------------------------


def test_the_events_are_read_when_they_are_asked_for(here: Path) -> None:
    recorded(here / "t")
    found = read_trace("t")
    (here / "t" / "events" / "00000001.npy").unlink()
    with pytest.raises(UsageError, match="it is gone"):
        list(found.events)


def test_a_segment_that_changes_while_it_is_read_is_refused(here: Path) -> None:
    recorded(here / "t")
    found = read_trace("t")
    np.save(here / "t" / "events" / "00000001.npy", events(3, 5))
    assert sum(map(len, found.events)) == 5
    (here / "t" / "events" / "00000001.npy").write_bytes(b"")
    with pytest.raises(UsageError, match="no npy file"):
        list(found.events)


def test_the_document_of_a_run_holds_no_environment(here: Path) -> None:
    recorded(here / "t")
    held = document(here / "t" / "run.json")
    assert set(held) == {"schema", "pid", "started", "ended", "options", "session", "run"}
    assert not any(value in (here / "t" / "run.json").read_text() for value in (os.environ["PATH"], str(here)))
