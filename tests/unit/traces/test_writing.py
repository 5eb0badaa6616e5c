"""Writing a trace: whole files for its owner only, in a folder of its own, and no harm to the run where it fails."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.analysis.facts import birth, sink, trace
from tests.unit.traces.folders import FOUND, RUN, document, events, recorded, tables
from whynan.errors import UsageError
from whynan.report.notes import sentence
from whynan.traces import format as layout
from whynan.traces.reader import read_trace
from whynan.traces.writer import TraceWriter

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders are named relative to the working directory, so that messages are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def left(folder: Path) -> list[str]:
    """Every file of a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def program(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that can import the tests."""
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


# -- the folder ------------------------------------------------------------------------------------------------------


def test_the_folder_and_all_in_it_are_their_owners_only(here: Path) -> None:
    before = os.umask(0)
    try:
        recorded(here / "runs" / "t1")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [here / "runs/t1", *(here / "runs/t1").rglob("*")]}
    assert {path.name: oct(mode) for path, mode in modes.items() if path.is_dir()} == {"t1": "0o700", "events": "0o700"}
    assert {oct(mode) for path, mode in modes.items() if path.is_file()} == {"0o600"}


def test_the_files_are_those_of_the_format(here: Path) -> None:
    recorded(here / "t")
    names = ["events/00000000.npy", "events/00000001.npy", "facts.json", *layout.TABLES, "run.json"]
    assert left(here / "t") == sorted(names)


def test_an_empty_folder_is_taken(here: Path) -> None:
    (here / "t").mkdir(mode=0o755)
    recorded(here / "t")
    assert stat.S_IMODE((here / "t").stat().st_mode) == 0o700
    assert len(read_trace(here / "t").events) == 6


@pytest.mark.parametrize("kind", ["full", "file", "link", "below"])
def test_any_other_place_is_refused_at_the_door(kind: str, here: Path, snapshot: SnapshotAssertion) -> None:
    (here / "full").mkdir()
    (here / "full" / "notes.txt").write_text("mine")
    (here / "file").write_text("mine")
    (here / "empty").mkdir()
    (here / "link").symlink_to("empty")
    with pytest.raises(UsageError) as refused:
        TraceWriter("file/t" if kind == "below" else kind)
    assert str(refused.value) == snapshot
    assert (here / "full" / "notes.txt").read_text() == "mine"
    assert list((here / "empty").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_elses_is_refused(here: Path, snapshot: SnapshotAssertion) -> None:
    (here / "t").mkdir()
    os.chown(here / "t", 12345, 12345)
    with pytest.raises(UsageError) as refused:
        TraceWriter("t")
    assert str(refused.value) == snapshot


def test_the_run_may_go_elsewhere_meanwhile(here: Path) -> None:
    writer = TraceWriter("t")
    os.chdir("/")
    writer.begin(RUN, {})
    assert (here / "t" / "run.json").exists()


# -- what is written -------------------------------------------------------------------------------------------------


def test_a_document_is_replaced_as_a_whole(here: Path) -> None:
    writer = recorded(here / "t", finished=False)
    with (here / "t" / "facts.json").open() as reader:
        writer.facts(trace([], []), {}, 0)
        assert '"label":1' in reader.read()
    assert read_trace(here / "t").trace.births == []


def test_the_end_may_be_told_again_by_who_knows_more(here: Path) -> None:
    writer = recorded(here / "t")
    first = document(here / "t" / "run.json")
    writer.end(RUN.model_copy(update={"exception": "KeyError: 'x'"}))
    again = document(here / "t" / "run.json")
    assert (again["started"], again["ended"]) == (first["started"], first["ended"])
    assert again["run"]["exception"] == "KeyError: 'x'"


def test_a_table_goes_on_where_its_last_whole_line_ended(here: Path) -> None:
    writer = recorded(here / "t", finished=False)
    with (here / "t" / "operators.jsonl").open("ab") as file:
        file.write(b'"aten.torn and much longer than what follows')
    writer.append(layout.OPERATORS, ['"aten.exp"'])
    assert read_trace(here / "t").events.operators == ("aten.log.default", "aten.exp")


def test_nothing_is_written_for_nothing(here: Path) -> None:
    writer = TraceWriter(here / "t")
    assert writer.append(layout.OPERATORS, [])
    assert not writer.segment(events(0, 0))
    assert left(here / "t") == []


def test_threads_write_one_after_the_other(here: Path) -> None:
    writer = TraceWriter(here / "t")
    writer.begin(RUN, {})
    threads = [
        threading.Thread(target=lambda: [writer.append(layout.NODES, [f'"{"x" * 200}"']) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_trace(here / "t").events.nodes) == {"x" * 200}
    assert len(read_trace(here / "t").events.nodes) == 200


def test_a_write_in_the_midst_of_a_write_is_let_go(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the handler of a signal."""
    writer = recorded(here / "t", finished=False)
    replace = os.replace
    within: list[bool] = []

    def interrupted(source: str, target: str) -> None:
        within.append(writer.facts(trace([], []), {}, 0))
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    assert writer.facts(trace([birth(1)], []), {}, 0)
    assert within == [False]
    assert [b.label for b in read_trace(here / "t").trace.births] == [1]
    assert writer.note is None


def test_an_interrupt_leaves_no_file_behind(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = recorded(here / "t")
    before = left(here / "t")

    def interrupted(source: str, target: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.facts(trace([], []), {}, 0)
    assert left(here / "t") == before
    monkeypatch.undo()
    assert writer.facts(trace([], []), {}, 0)


def test_a_forked_child_writes_nothing(here: Path) -> None:
    writer = recorded(here / "t", finished=False)
    child = os.fork()
    if not child:
        done = writer.facts(trace([], []), {}, 0) or writer.segment(events(6, 9)) or writer.append(layout.NODES, ["1"])
        writer.end(RUN)
        os._exit(1 if done else 0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    found = read_trace(here / "t")
    assert (len(found.trace.births), len(found.events), found.ended) == (2, 6, None)


# -- a disk that is full ---------------------------------------------------------------------------------------------

FILL = """
import os, resource, signal, sys
from tests.unit.analysis.facts import birth, sink, trace
from tests.unit.traces.folders import RUN, events, tables
from whynan.report.notes import sentence
from whynan.traces.writer import TraceWriter
{prepare}
writer = TraceWriter(sys.argv[1])
writer.begin(RUN, {{}})
tables(writer)
size, start = 100, 0
while writer.note is None and start < 100_000:
    writer.facts(trace([birth(1)], [sink(1)]), {{}}, 0)
    writer.segment(events(start, start + size))
    start += size
    size += {growing}
stopped = writer.note
writer.facts(trace([birth(1)], [sink(1)]), {{}}, 0)
writer.end(RUN)
assert writer.note == stopped
print(writer.note and sentence(writer.note))
print(writer.events)
"""


@pytest.fixture
def tiny(here: Path) -> Iterator[Path]:
    """A file system of 64 KiB; skipped where none can be mounted."""
    place = here / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.process
def test_a_full_disk_ends_the_trace_and_not_the_run(tiny: Path, snapshot: SnapshotAssertion) -> None:
    result = program(FILL.format(prepare="", growing="0"), "disk/t")
    assert result.returncode == 0, result.stderr
    note, written = result.stdout.splitlines()
    assert note.replace(f"{int(written):,}", "many") == snapshot
    assert int(written) > 0
    assert not [name for name in left(tiny) if name.endswith(layout.TEMPORARY)]
    found = read_trace(tiny / "t")
    assert (sum(map(len, found.events)), found.ended) == (int(written), None)
    assert [b.label for b in found.trace.births] == [1]


@pytest.mark.process
def test_a_limit_on_the_size_of_files_ends_the_trace_and_not_the_run(here: Path, snapshot: SnapshotAssertion) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))"
    result = program(FILL.format(prepare=limit, growing="100"), "t")
    assert result.returncode == 0, result.stderr
    note, written = result.stdout.splitlines()
    assert note == snapshot
    assert int(written) > 0
    assert not [name for name in left(here / "t") if name.endswith(layout.TEMPORARY)]
    assert sum(map(len, read_trace(here / "t").events)) == int(written)


@pytest.mark.process
def test_the_same_run_with_room_enough_does_not_stop(here: Path) -> None:
    result = program(FILL.format(prepare="", growing="0"), "t")
    assert result.stdout.splitlines() == ["None", "100000"]


def test_a_folder_that_is_taken_away_ends_the_trace(here: Path, snapshot: SnapshotAssertion) -> None:
    writer = recorded(here / "t")
    writer.shown = "t"
    os.rename(here / "t", here / "u")
    assert not writer.facts(FOUND, {}, 0)
    assert writer.note is not None
    assert sentence(writer.note) == snapshot


def test_a_table_that_outgrows_its_limit_ends_the_trace(
    here: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(layout, "MOST_TABLE_BYTES", 1 << 20)
    writer = TraceWriter("t")
    writer.begin(RUN, {})
    tables(writer)
    assert writer.append(layout.NODES, ['"x"'] * 250_000)
    assert not writer.append(layout.NODES, ['"x"'] * 250_000)
    assert writer.note is not None
    assert sentence(writer.note) == snapshot


def test_facts_that_outgrow_their_limit_end_the_trace(
    here: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(layout, "MOST_DOCUMENT_BYTES", 1 << 20)
    writer = recorded(here / "t")
    writer.shown = "t"
    assert not writer.facts(trace([birth(n) for n in range(1, 5000)], [sink(1)]), {}, 0)
    assert writer.note is not None
    assert sentence(writer.note) == snapshot
    assert len(read_trace(here / "t").trace.births) == 2


# -- redacted --------------------------------------------------------------------------------------------------------


def test_a_redacted_trace_holds_nothing_private(here: Path) -> None:
    writer = TraceWriter(here / "t", redact=True)
    names = {table: writer.name(table, "mine.Secret") for table in (layout.OPERATORS, layout.NODES, layout.MODULES)}
    assert "Secret" not in str(names)
    assert writer.name(layout.OPERATORS, "aten.log.default") == "aten.log.default"
    writer.begin(RUN, {})
    writer.facts(trace([birth(1)], [sink(1, kind="parameter", name="secret.weight")]), {"net.py": "0" * 64}, 0)
    text = (here / "t" / "facts.json").read_text()
    assert not any(word in text for word in ("net.py", "secret", "torch.f(x)", "0" * 64))
    assert [s.name for s in read_trace(here / "t").trace.sinks] == ["tensor 1"]


def test_a_segment_is_a_plain_array(here: Path) -> None:
    recorded(here / "t")
    assert np.load(here / "t" / "events" / "00000001.npy", allow_pickle=False)["ordinal"].tolist() == [3, 4, 5]


def test_events_for_which_there_is_no_room_are_left_out_and_facts_are_not(
    here: Path, snapshot: SnapshotAssertion
) -> None:
    writer = TraceWriter("t", budget=layout.event_dtype().itemsize * 250)
    writer.begin(RUN, {})
    tables(writer)
    assert [writer.segment(events(n, n + 100)) for n in range(0, 400, 100)] == [True, True, False, False]
    assert writer.note is None
    assert writer.left_out is not None
    assert sentence(writer.left_out) == snapshot
    assert writer.facts(FOUND, {}, 0) is True
    assert writer.with_notes(FOUND.coverage).typed_notes == (writer.left_out,)
    writer.meant = lambda: ()
    assert writer.facts(trace([birth(1)], [sink(1)]), {}, 0)
    assert len(read_trace("t").events) == 200
