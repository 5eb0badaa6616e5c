"""A report on its way out: to the standard error stream, to a file, and nowhere where neither can be had."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.report.programs import REPORTS
from whynan.config import Options
from whynan.report.json import to_json
from whynan.report.terminal import render
from whynan.run.output.delivery import deliver, say
from whynan.run.pipeline import fold_report

REPORT = REPORTS["forward"]


class Own(io.StringIO):
    """A stream of the program's own, which notices."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1


@pytest.fixture
def err(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The standard error stream that Python began with."""
    out = io.StringIO()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "__stderr__", out)
    return out


def test_a_report_goes_to_the_stream_that_python_began_with(err: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    deliver(REPORT, Options())
    assert err.getvalue() == render(REPORT, width=100) + "\n"


def test_it_shows_all_where_that_is_wanted(err: io.StringIO) -> None:
    deliver(REPORTS["several"], Options(all_=True))
    assert err.getvalue() == render(fold_report(REPORTS["several"]), width=100, show_all=True) + "\n"


def test_without_that_stream_it_goes_nowhere_else(
    err: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", None)
    monkeypatch.setattr(sys, "stdout", out)
    deliver(REPORT, Options(json="r.json"))
    say("nobody hears this")
    assert out.getvalue() == ""
    assert capsys.readouterr() == ("", "")
    assert Path("r.json").read_text() == to_json(REPORT) + "\n"


def test_a_closed_stream_is_none(err: io.StringIO) -> None:
    err.close()
    deliver(REPORT, Options())
    say("nobody hears this")


def test_quiet_only_the_document_is_made(err: io.StringIO) -> None:
    deliver(REPORT, Options(quiet=True, json="r.json"))
    assert err.getvalue() == ""
    assert Path("r.json").read_text() == to_json(REPORT) + "\n"


def test_both_leave_out_what_is_private(err: io.StringIO) -> None:
    deliver(REPORT, Options(redact=True, json="r.json"))
    for text in (err.getvalue(), Path("r.json").read_text()):
        assert "net.py" not in text
        assert "WN101" in text


@pytest.mark.parametrize("path", ["/dev/full", "nowhere/r.json"])
def test_a_document_that_cannot_be_written_is_said_and_the_report_comes(
    path: str, err: io.StringIO, snapshot: SnapshotAssertion
) -> None:
    deliver(REPORT, Options(json=path))
    first, rest = err.getvalue().split("\n", 1)
    assert first == snapshot
    assert rest == render(REPORT, width=100) + "\n"


@pytest.mark.parametrize("quiet", [True, False])
def test_the_programs_own_stream_is_left_alone(quiet: bool, err: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Own()
    monkeypatch.setattr(sys, "stdout", out)
    deliver(REPORT, Options(quiet=quiet))
    assert out.flushes == 0


@pytest.mark.parametrize(
    ("options", "flushed"),
    [
        (Options(), True),
        (Options(quiet=True), False),
        (Options(quiet=True, json="r.json"), False),
        (Options(quiet=True, json="/dev/stderr"), True),
    ],
)
def test_what_the_program_has_written_comes_before_what_follows_it(
    options: Options, flushed: bool, err: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Own()
    for name in ("stdout", "__stdout__"):
        monkeypatch.setattr(sys, name, out)
    monkeypatch.setattr("whynan.run.output.delivery.write_text", lambda *_: None)
    deliver(REPORT, options)
    assert bool(out.flushes) is flushed


def test_a_word_is_one_line_in_which_everything_can_be_seen(err: io.StringIO) -> None:
    say("there is no \x1b[2J\n\udcff")
    assert err.getvalue() == "whynan: there is no \\x1b[2J\\n\\udcff\n"


PROGRAM = """
import sys
from tests.unit.report.programs import REPORTS
from whynan.config import Options
from whynan.run.output.delivery import deliver, say
print("before")
deliver(REPORTS["forward"], Options())
say("a word")
print("after")
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", ["full", "gone", "closed", "shut"])
def test_an_error_stream_that_takes_nothing_ends_nothing(kind: str) -> None:
    # full: a device without room; gone: a pipe that nobody reads; closed: no descriptor 2; shut: closed by the program
    shut = "import os; os.close(2)\n" if kind == "shut" else ""
    redirected = {"full": "2>/dev/full", "gone": "2> >(true; exec cat <&-)", "closed": "2>&-", "shut": ""}[kind]
    command = ["bash", "-c", f'"$0" -c "$1" {redirected}', sys.executable, shut + PROGRAM]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], timeout=60
    )
    assert (result.stdout, result.returncode) == ("before\nafter\n", 0)
