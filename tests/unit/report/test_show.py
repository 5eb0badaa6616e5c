"""Printing a report: in colour on a terminal only, in whatever the output can write, and to a reader who leaves."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.report.programs import REPORTS
from whynan.report.terminal import render, show

PROGRAM = """
import sys
from whynan.report.json import parse_report
report = parse_report(open(sys.argv[1], "rb").read())
print("before")
report.show()
print("after")
"""


class Terminal(io.StringIO):
    """What says that it is a terminal."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def shown_on(out: io.TextIOBase | None, monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, held in {"TERM": "xterm", "COLUMNS": "80", **environment}.items():
        monkeypatch.setenv(name, held)
    monkeypatch.setattr(sys, "stdout", out)
    show(REPORTS["several"])


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_colours_unless_it_wants_none(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Terminal()
    shown_on(out, monkeypatch, **environment)
    assert ("\x1b[" in out.getvalue()) is coloured


def test_what_is_no_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    shown_on(out, monkeypatch)
    assert out.getvalue() == render(REPORTS["several"], width=80) + "\n"


def test_show_all_is_passed_on() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show(REPORTS["several"], show_all=True)
    assert "NaN that did no harm" in out.getvalue()


@pytest.mark.parametrize("closed", [True, False])
def test_without_an_output_nothing_is_said(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    out.close()
    shown_on(out if closed else None, monkeypatch)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig", "ascii"])
def test_an_output_without_a_descriptor_is_written_to_as_it_is(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = io.BytesIO()
    out = io.TextIOWrapper(held, encoding=encoding, newline="\n")
    shown_on(out, monkeypatch)
    assert held.getvalue().decode(encoding) == render(REPORTS["several"], width=80, encoding=encoding) + "\n"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(REPORTS["backward"].to_json(), "utf-8")
    return path


def environment(**changed: str) -> dict[str, str]:
    left_out = ("NO_COLOR", "PYTHONIOENCODING", "PYTHONUNBUFFERED")
    kept = {name: held for name, held in os.environ.items() if name not in left_out}
    return {**kept, "TERM": "xterm", "COLUMNS": "80", **changed}


def printed(saved: Path, **changed: str) -> bytes:
    command = [sys.executable, "-c", PROGRAM, str(saved)]
    done = subprocess.run(command, capture_output=True, env=environment(**changed), timeout=60, check=True)
    assert done.stderr == b""
    return done.stdout


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii", "cp1252", "utf-8-sig"])
def test_a_pipe_gets_plain_text_in_its_encoding_and_in_order(saved: Path, encoding: str) -> None:
    text = printed(saved, PYTHONIOENCODING=encoding).decode(encoding)
    assert text.splitlines() == [
        "before",
        *render(REPORTS["backward"], width=80, encoding=encoding).splitlines(),
        "after",
    ]


@pytest.mark.process
def test_the_c_locale_gets_ascii(saved: Path) -> None:
    text = printed(saved, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0").decode("ascii")
    assert "imag^2 + real^2" in text


@pytest.mark.process
@pytest.mark.parametrize("wanted", [True, False])
def test_a_pseudo_terminal_gets_colours(saved: Path, wanted: bool) -> None:
    ours, theirs = pty.openpty()
    changed = environment() if wanted else environment(NO_COLOR="1")
    command = [sys.executable, "-c", PROGRAM, str(saved)]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=changed) as program:
        os.close(theirs)
        text = b""
        # a terminal whose other end is gone gives an error where a pipe gives nothing
        with contextlib.suppress(OSError):
            while block := os.read(ours, 65536):
                text += block
        assert program.wait(timeout=60) == 0
    os.close(ours)
    assert b"Inf or NaN in the gradients" in text
    assert (b"\x1b[1;31m" in text) is wanted


LEFT = """
import os, sys
from whynan.report.json import parse_report
report = parse_report(open(sys.argv[1], "rb").read())
ours, theirs = os.pipe()
os.dup2(theirs, 1)
os.close(theirs)
os.close(ours)
{print}
report.show()
sys.stderr.write("went on")
"""


@pytest.mark.process
def test_a_reader_who_has_left_ends_nothing(saved: Path) -> None:
    command = [sys.executable, "-c", LEFT.format(print=""), str(saved)]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=60, check=False)
    # nothing is left in the buffer of the output, over which the interpreter would complain as it exits
    assert (done.returncode, done.stderr) == (0, b"went on")


@pytest.mark.process
def test_what_the_program_itself_could_not_print_stays_its_own_affair(saved: Path) -> None:
    command = [sys.executable, "-c", LEFT.format(print="print('lost')"), str(saved)]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=60, check=False)
    assert done.stderr.startswith(b"went on")
    assert b"BrokenPipeError" in done.stderr
