"""The process that waits for a program: what it gives it, what it says of its end, and what it puts into the report."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.report.programs import report
from whynan.config import Options
from whynan.errors import UsageError
from whynan.report.json import read, to_json
from whynan.session import again, launching, temporary
from whynan.session.launching import launch
from whynan.session.programs import Program

WROTE = '{"whynan": %d, "stopped": %s, "loaded": true}'


class Process:
    """What a program's process leaves behind it: a word, files, an end."""

    def __init__(self, code: int = 0, word: str | None = None, files: dict[str, str] | None = None) -> None:
        self.code = code
        self.word = word
        self.files = files or {}
        self.command: list[str] = []
        self.environment: dict[str, str] = {}

    def run(self, command: list[str], environment: dict[str, str]) -> int:
        self.command, self.environment = command, environment
        for name, text in self.files.items():
            Path(name).write_text(text, encoding="utf-8")
        if self.word is not None:
            Path(environment["_WHYNAN_STATUS"]).write_text(self.word)
        return self.code


class EndedError(Exception):
    """The process has ended by a signal."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names are relative, and a signal ends no test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def end_as(number: int) -> None:
        raise EndedError(number)

    monkeypatch.setattr(launching, "end_as", end_as)
    return tmp_path


@pytest.fixture
def err(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The standard error stream that Python began with."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", out)
    return out


def launched(process: Process, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    """Launch a script whose process is this one; its exit status, negative for a signal."""
    monkeypatch.setattr(launching, "Supervisor", lambda: process)
    try:
        return launch(Program("script", "train.py", ("--secret",)), Options(**options))
    except EndedError as ended:
        return -int(ended.args[0])


def test_the_program_finds_the_command_line_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(word=WROTE % (0, "false"))
    launched(process, monkeypatch, json="r.json", only="head")
    assert process.command[-2:] == ["train.py", "--secret"]
    told = json.loads(process.environment["_WHYNAN_RUN"])
    assert told["command"] == "train.py"
    assert told["options"]["only"] == "head"
    assert told["options"]["json"] == os.path.abspath("r.json")
    assert "--secret" not in process.environment["_WHYNAN_RUN"]
    assert not os.path.exists(os.path.dirname(process.environment["_WHYNAN_STATUS"]))


@pytest.mark.parametrize(
    ("before", "path", "kept"), [(None, "{boot}", None), ("", "{boot}", ""), ("a:", "{boot}:a:", "a:")]
)
def test_a_path_of_the_users_stands_behind(
    before: str | None, path: str, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    process = Process(word=WROTE % (0, "false"))
    launched(process, monkeypatch)
    boot = Path(launching.__file__).parent / "boot"
    assert process.environment["PYTHONPATH"] == path.format(boot=boot)
    assert process.environment.get("_WHYNAN_PYTHONPATH") == kept


def test_names_that_are_no_utf_8_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(word=WROTE % (0, "false"))
    launched(process, monkeypatch, json="\udcff.json")
    told = json.loads(os.fsencode(process.environment["_WHYNAN_RUN"]))
    assert told["options"]["json"] == os.path.abspath("\udcff.json")


@pytest.mark.parametrize(
    ("code", "whynan", "stopped", "status"),
    [
        (0, 0, "false", 0),
        (0, 1, "false", 1),
        (3, 1, "false", 3),
        (1, 1, "true", 1),
        (0, 1, "true", 1),
        (0, 130, "false", 130),
    ],
)
def test_the_programs_own_status_wins(
    code: int, whynan: int, stopped: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launched(Process(code, WROTE % (whynan, stopped)), monkeypatch) == status


def test_the_signal_that_the_program_died_of_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched(Process(-15, WROTE % (1, "false")), monkeypatch) == -15


# -- the report that is there already --------------------------------------------------------------------------------

FOUND = to_json(report(verdict="clean", run={"exit_status": {"script": 0, "whynan": 1}}))


@pytest.mark.parametrize(
    ("code", "stopped", "script"), [(3, "false", 3), (-2, "false", 130), (0, "false", 0), (3, "true", 0)]
)
def test_a_document_learns_how_the_program_ended(
    code: int, stopped: str, script: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(Process(code, WROTE % (1, stopped), {"r.json": FOUND}), monkeypatch, json="r.json")
    status = read(Path("r.json").read_bytes()).run.exit_status
    assert (status.script, status.whynan) == (script, 1)


def test_a_trace_learns_it_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "t").mkdir()
    process = Process(3, WROTE % (0, "false"), {"t/run.json": '{"run": {"exit_status": {"script": 0, "whynan": 0}}}'})
    assert launched(process, monkeypatch, trace="t") == 3
    assert json.loads((here / "t" / "run.json").read_text())["run"]["exit_status"]["script"] == 3


@pytest.mark.parametrize("there", ["{}", "no report", None])
def test_what_is_no_report_any_more_is_left_alone(
    there: str | None, monkeypatch: pytest.MonkeyPatch, err: io.StringIO
) -> None:
    files = {} if there is None else {"r.json": there}
    assert launched(Process(3, WROTE % (0, "false"), files), monkeypatch, json="r.json") == 3
    assert err.getvalue() == ""
    assert (Path("r.json").read_text() if there else None) == there


def test_a_pipe_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo("r.json")
    # to read from it would be to wait for ever
    assert launched(Process(3, WROTE % (0, "false")), monkeypatch, json="r.json") == 3


# -- what is said of a program without a report ----------------------------------------------------------------------

UNSEEN: dict[str, tuple[Process, dict[str, Any]]] = {
    "killed": (Process(-9), {}),
    "killed by a signal without a name": (Process(-(signal.SIGRTMIN + 3)), {}),
    "killed with a trace": (Process(-9), {"trace": "t\x1b[2J"}),
    "replaced": (Process(0), {}),
    "replaced with a trace": (Process(0), {"trace": "t"}),
    "killed before an old report": (Process(-9), {"json": "old.json"}),
    "failed before an old report": (Process(0, '{"whynan": 0}'), {"json": "old.json"}),
    "no torch": (Process(0, '{"whynan": 0, "loaded": false}'), {}),
}


@pytest.mark.parametrize("case", UNSEEN)
def test_what_there_is_no_report_of_is_said(
    case: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    err: io.StringIO,
    snapshot: SnapshotAssertion,
) -> None:
    (here / "old.json").write_text(FOUND)
    process, options = UNSEEN[case]
    assert launched(process, monkeypatch, **options) == process.code
    assert err.getvalue().replace(str(here), "HERE") == snapshot


@pytest.mark.parametrize("case", UNSEEN)
def test_quiet_nothing_is_said(case: str, monkeypatch: pytest.MonkeyPatch, err: io.StringIO) -> None:
    process, options = UNSEEN[case]
    launched(process, monkeypatch, quiet=True, **options)
    assert err.getvalue() == ""


@pytest.mark.parametrize(
    ("process", "options"),
    [
        (Process(0, '{"whynan": 0, "loaded": true, "stopped": false}'), {}),
        (Process(2, '{"whynan": 0, "loaded": false}'), {}),
        (Process(0, '{"whynan": 0}'), {}),
    ],
    ids=["a report", "an end that speaks for itself", "a failure that was said"],
)
def test_nothing_is_said_where_all_has_been_said(
    process: Process, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, err: io.StringIO
) -> None:
    launched(process, monkeypatch, **options)
    assert err.getvalue() == ""


def test_a_report_of_this_run_is_not_taken_for_an_earlier_one(
    here: Path, monkeypatch: pytest.MonkeyPatch, err: io.StringIO
) -> None:
    (here / "r.json").write_text("old")
    launched(Process(-9, None, {"r.json": FOUND}), monkeypatch, json="r.json")
    assert "earlier run" not in err.getvalue()


@pytest.mark.parametrize("word", ["", "[]", "{"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_word_that_is_none_changes_no_end(code: int, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched(Process(code, word), monkeypatch, quiet=True) == code


def test_an_error_of_our_own_changes_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    monkeypatch.setattr(launching, "_amend", lambda *_: 1 / 0)
    with pytest.warns(RuntimeWarning, match="an error of its own"):
        assert launched(Process(-2, WROTE % (1, "false")), monkeypatch) == -2


def test_without_torch_a_document_says_so(
    monkeypatch: pytest.MonkeyPatch, err: io.StringIO, snapshot: SnapshotAssertion
) -> None:
    assert launched(Process(3, '{"whynan": 0, "loaded": false}'), monkeypatch, json="r.json") == 3
    made = read(Path("r.json").read_bytes())
    assert (made.verdict, made.coverage.events, made.run.exit_status.script) == ("clean", 0, 3)
    assert made.run.command == "train.py"
    assert err.getvalue() == snapshot


def test_where_no_folder_can_be_made_nothing_runs(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    def none(**_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(temporary.tempfile, "mkdtemp", none)
    process = Process()
    with pytest.raises(UsageError) as caught:
        launched(process, monkeypatch)
    assert str(caught.value) == snapshot
    assert process.command == []


# -- a report that a second run may better ---------------------------------------------------------------------------

LEFT = report(verdict="inconclusive", run={"exit_status": {"script": 0, "whynan": 1}})
AGAIN = '{"whynan": 1, "stopped": %s, "loaded": true, "again": true}'
WANTED = '{"signature": {"step": 4}, "seconds": 1.0}'


class Leaving(Process):
    """What a program leaves that was not explained."""

    def run(self, command: list[str], environment: dict[str, str]) -> int:
        folder = Path(environment["_WHYNAN_STATUS"]).parent
        (folder / "first.json").write_text(to_json(LEFT))
        (folder / "wanted.json").write_text(WANTED)
        return super().run(command, environment)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The second run: what it is given, and which files it leaves."""
    seen: dict[str, Any] = {"files": {}, "ran": 0}

    def run(command: list[str], environment: dict[str, str], seconds: float) -> str | None:
        seen.update(command=command, environment=environment, seconds=seconds, ran=seen["ran"] + 1)
        for name, text in seen["files"].items():
            Path(environment["TMPDIR"], name).write_text(text)
        if isinstance(seen.get("ended"), Exception):
            raise seen["ended"]
        return seen.get("ended")

    monkeypatch.setattr(again, "_run", run)
    return seen


def told() -> tuple[Any, list[str]]:
    """The report that was delivered, and its notes."""
    found = read(Path("r.json").read_bytes())
    return found, list(found.coverage.notes)


def test_the_second_runs_report_takes_the_place_of_the_first(
    second: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = {"kind": "rerun", "faithful": True, "why": "identical"}
    better = report(verdict="nonfinite", run={"exit_status": {"script": 0, "whynan": 1}, "replay": replay})
    second["files"] = {"second.json": to_json(better)}
    assert launched(Leaving(1, AGAIN % "true"), monkeypatch, json="r.json", quiet=True) == 1
    found, _ = told()
    assert (found.verdict, found.run.replay.kind, found.run.exit_status.script) == ("nonfinite", "rerun", None)
    environment = second["environment"]
    assert json.loads(environment["_WHYNAN_RUN"])["signature"] == {"step": 4}
    assert environment["_WHYNAN_AGAIN"] == "step"
    assert second["seconds"] == again.TIMES + again.AT_LEAST
    assert not os.path.exists(environment["TMPDIR"])


@pytest.mark.parametrize(
    ("ended", "files", "note"),
    [
        ("it was interrupted", {}, "a second run was not used: it was interrupted"),
        (
            None,
            {"why": "other losses than in the first run"},
            "a second run was not used: other losses than in the first run",
        ),
        (None, {}, "a second run was not used: it was cut short before it came to step 4"),
        (
            "it took more than 9 seconds",
            {"second.json": "{}"},
            "a second run was not used: it took more than 9 seconds",
        ),
    ],
)
def test_the_first_report_says_why_the_second_is_not_used(
    ended: str | None,
    files: dict[str, str],
    note: str,
    second: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second.update(ended=ended, files=files)
    assert launched(Leaving(3, AGAIN % "false"), monkeypatch, json="r.json", quiet=True) == 3
    found, notes = told()
    assert (found.verdict, found.run.exit_status.script, note in notes) == ("inconclusive", 3, True)


def test_who_was_killed_is_not_run_again(second: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched(Leaving(-2, AGAIN % "false"), monkeypatch, json="r.json", quiet=True) == -2
    found, notes = told()
    assert (second["ran"], found.run.exit_status.script) == (0, 130)
    assert "no second run: the program was ended by a signal" in notes


@pytest.mark.parametrize("broken", [ZeroDivisionError(), None], ids=["an error", "no report"])
def test_an_error_of_ours_leaves_the_first_report(
    broken: Exception | None, second: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    second.update(ended=broken, files={} if broken else {"second.json": "{"})
    with pytest.warns(RuntimeWarning, match="an error of its own"):
        assert launched(Leaving(0, AGAIN % "false"), monkeypatch, json="r.json", quiet=True) == 1
    assert told()[0].verdict == "inconclusive"


def test_no_name_comes_into_a_private_report(second: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    second["files"] = {"why": "it opens secret.txt for writing at secret.py:1"}
    launched(Leaving(0, AGAIN % "false"), monkeypatch, json="r.json", quiet=True, redact=True)
    assert "a second run was not used: a reason, left out" in told()[1]
    assert "secret" not in Path("r.json").read_text().replace("--secret", "")
