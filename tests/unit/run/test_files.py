"""Files that a run writes: whole or not at all, their owner's, and refused before anything runs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.errors import UsageError
from whynan.run.output import files
from whynan.run.output.files import check_writable, is_replaceable, stream, write_text


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names are relative, so that messages are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(path: Path, text: str) -> str:
    check_writable(str(path), "--json")
    write_text(str(path), text)
    return path.read_text()


def test_a_file_is_its_owners_only(here: Path) -> None:
    assert written(here / "r.json", "é\udcff") == "é\\udcff"
    assert stat.S_IMODE((here / "r.json").stat().st_mode) == 0o600
    assert os.listdir(here) == ["r.json"]


def test_another_file_takes_the_place_of_an_old_one(here: Path) -> None:
    (here / "r.json").write_text("old, and longer than the new one")
    with open(here / "r.json") as reader:
        assert written(here / "r.json", "new") == "new"
        # who reads it reads on in what it was
        assert reader.read().startswith("old")


def test_a_link_stays_a_link(here: Path) -> None:
    (here / "there").mkdir()
    (here / "r.json").symlink_to("there/real.json")
    assert written(here / "r.json", "new") == "new"
    assert (here / "r.json").is_symlink()
    assert (here / "there" / "real.json").read_text() == "new"


def test_a_check_leaves_everything_as_it_was(here: Path) -> None:
    (here / "r.json").write_text("old")
    before = (here / "r.json").stat()
    check_writable("r.json", "--json")
    check_writable("new.json", "--json")
    assert os.listdir(here) == ["r.json"]
    assert (here / "r.json").stat().st_mtime_ns == before.st_mtime_ns


def test_a_failure_leaves_the_old_file_and_nothing_else(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "r.json").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fdopen", full)
    with pytest.raises(OSError, match="No space"):
        write_text("r.json", "new")
    assert os.listdir(here) == ["r.json"]
    assert (here / "r.json").read_text() == "old"


@pytest.mark.parametrize("function", ["mkstemp", "replace"])
def test_a_file_in_a_folder_of_somebody_elses_is_written_over(
    function: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "r.json").write_text("old, and longer than the new one")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile if function == "mkstemp" else files.os, function, refused)
    assert written(here / "r.json", "new") == "new"
    assert os.listdir(here) == ["r.json"]


def test_nothing_is_made_where_nothing_can_take_a_place(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile, "mkstemp", refused)
    with pytest.raises(PermissionError):
        write_text("r.json", "new")
    assert os.listdir(here) == []


def test_a_reader_at_a_pipe_hears_nothing_of_the_check(here: Path) -> None:
    os.mkfifo("pipe")
    # opened to be written to, it would wait for ever: nobody reads
    check_writable("pipe", "--json")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((here / "pipe").read_text()))
    reader.start()
    write_text("pipe", "the report")
    reader.join()
    assert got == ["the report"]
    assert stat.S_ISFIFO((here / "pipe").stat().st_mode)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/dev/stdout", 1),
        ("/dev/stderr", 2),
        ("-", 1),
        ("./-", None),
        ("/dev/fd/63", 63),
        ("/proc/self/fd/7", 7),
        ("/dev/fd/../null", None),
        ("/dev/null", None),
        ("stdout", None),
    ],
)
def test_some_paths_stand_for_an_open_file(path: str, number: int | None) -> None:
    assert stream(path) == number


def test_what_stands_for_an_open_file_is_never_replaced() -> None:
    assert not is_replaceable("/dev/stdout")
    assert not is_replaceable("/dev/null")
    assert is_replaceable("new.json")


WRITER = """
import sys
from whynan.run.output.files import check_writable, write_text
check_writable("/dev/stdout", "--json")
print("before", flush=True)
write_text("/dev/stdout", "the report\\n")
print("after")
"""


@pytest.mark.process
def test_the_programs_own_output_stays_where_it_is_a_file(here: Path) -> None:
    with open("out", "wb") as out:
        subprocess.run([sys.executable, "-c", WRITER], stdout=out, check=True)
    assert Path("out").read_text() == "before\nthe report\nafter\n"


REFUSED = {
    "a folder": "folder",
    "a file as a folder": "file/r.json",
    "no such folder": "nowhere/r.json",
    "a dangling link": "dangling",
    "a descriptor that is not open": "/dev/fd/987",
    "control characters": "\x1b[2J/r.json",
    "no UTF-8": "\udcff/r.json",
    "a device as a folder": "/dev/null/r.json",
    "too long a name": "x" * 300,
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused(case: str, here: Path, snapshot: SnapshotAssertion) -> None:
    (here / "folder").mkdir()
    (here / "file").write_text("")
    (here / "dangling").symlink_to("nowhere/real.json")
    with pytest.raises(UsageError) as caught:
        check_writable(REFUSED[case], "--json")
    assert str(caught.value).replace(str(here), "HERE") == snapshot
    assert set(os.listdir(here)) == {"folder", "file", "dangling"}


@pytest.mark.process
def test_a_stream_that_is_only_read_is_refused() -> None:
    code = "from whynan.run.output.files import check_writable; check_writable('/dev/stdin', '--json')"
    with open("/dev/null") as nothing:
        result = subprocess.run(
            [sys.executable, "-c", code], stdin=nothing, capture_output=True, text=True, check=False
        )
    assert "--json /dev/stdin cannot be written (Bad file descriptor)" in result.stderr
