"""``whynan run`` as a command: what it refuses, what it says where, and how it meets signals and closed streams."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="of signals, terminals and /dev/full"),
]

WHYNAN = Path(sys.executable).with_name("whynan")
SCRIPTS = {
    "good.py": 'open("ran", "w").close()\nprint("ran")\n',
    "bad.py": """\
import torch

weight = torch.full((2,), 50.0, requires_grad=True)
(weight * 2).exp().sum().backward()
print("done")
""",
    "waiting.py": """\
import torch

weight = torch.full((2,), 50.0, requires_grad=True)
(weight * 2).exp().sum().backward()
try:
    print("ready", flush=True)
    while True:
        pass
finally:
    print("tidied", flush=True)
""",
    "deaf.py": """\
import sys
import torch

weight = torch.full((2,), 50.0, requires_grad=True)
(weight * 2).exp().sum().backward()
sys.stderr.close()
""",
    "stepping.py": """\
import torch

weight = torch.tensor([50.0, 2.0], requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1e-30)
for step in range(3):
    optimizer.zero_grad()
    (weight * (step + 1)).exp().sum().backward()
    optimizer.step()
    print(step, flush=True)
""",
    "package/__init__.py": "",
    "folder/part.py": "",
    "no_report.json": "{}\n",
    "wrong.json": "not a report\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with some programs in it."""
    for name, text in SCRIPTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def _environment(**more: str) -> dict[str, str]:
    usual = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8", "COLUMNS": "100"}
    return {**usual, "WHYNAN_RAISE_INTERNAL": "1", **more}


def _run(folder: Path, *arguments: str, python: tuple[str, ...] = (), **more: Any) -> subprocess.CompletedProcess[str]:
    environment = _environment(**more.pop("environment", {}))
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **more}
    command = [sys.executable, *python, str(WHYNAN), "run", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, text=True, check=False, timeout=120, **more)


def _files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def _without_versions(report: str) -> str:
    return re.sub(r" +whynan \S+ (\S) torch \S+ \S ", r"  whynan \1 torch \1 ", report)


REFUSED: dict[str, list[str]] = {
    "nothing": [],
    "no such file": ["missing.py"],
    "a name that is empty": [""],
    "a folder without a program": ["folder"],
    "a file for a folder": ["good.py/part"],
    "no such module": ["-m", "missing"],
    "a package without a program": ["-m", "package"],
    "a relative module": ["-m", ".part"],
    "no module's name": ["-m", "a..b"],
    "no module": ["-m"],
    "no code": ["-c"],
    "no such option": ["--nope", "good.py"],
    "a second run": ["--no-second-run", "good.py"],
    "no such choice": ["--on-nonfinite", "never", "good.py"],
    "no such mode": ["--mode", "nothing", "good.py"],
    "a watch of some steps": ["--mode", "watch", "--steps", "3", "good.py"],
    "a step left out of a trace": ["--on-nonfinite", "skip", "--mode", "trace", "good.py"],
    "no number": ["--start-step", "soon", "good.py"],
    "a step before the first": ["--start-step", "0", "good.py"],
    "no steps": ["--steps", "-3", "good.py"],
    "no size": ["--memory", "lots", "good.py"],
    "a size below nothing": ["--memory", "-5", "good.py"],
    "no module to look into": ["--only", "", "good.py"],
    "a report in a folder that is not there": ["--json", "missing/report.json", "good.py"],
    "a report in place of a folder": ["--json", "folder", "good.py"],
    "a report in place of the program": ["--json", "good.py", "good.py"],
    "a report without a name": ["--json", "", "good.py"],
    "a trace in place of a file": ["--trace", "good.py", "good.py"],
    "a trace among other files": ["--trace", "folder", "good.py"],
    "no such baseline": ["--baseline", "missing.json", "good.py"],
    "a baseline that is a folder": ["--baseline", "folder", "good.py"],
    "a baseline that is no report": ["--baseline", "no_report.json", "good.py"],
    "a baseline that is no document": ["--baseline", "wrong.json", "good.py"],
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_work_is_refused_in_one_line_before_anything_runs(
    case: str, folder: Path, snapshot: SnapshotAssertion
) -> None:
    before = _files(folder)
    done = _run(folder, *REFUSED[case])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert _files(folder) == before
    assert {n: (folder / n).read_text(encoding="utf-8") for n in SCRIPTS} == SCRIPTS
    assert done.stderr.replace(str(folder), "...") == snapshot


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything is readable by root")
def test_what_may_not_be_read_or_written_is_refused(folder: Path) -> None:
    (folder / "good.py").chmod(0)
    assert "cannot be read" in _run(folder, "good.py").stderr
    (folder / "folder").chmod(0o500)
    assert "cannot be written" in _run(folder, "--json", "folder/report.json", "bad.py").stderr


def test_a_program_without_torch_runs_and_the_report_says_so(folder: Path, snapshot: SnapshotAssertion) -> None:
    done = _run(folder, "good.py")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == snapshot


@pytest.mark.smoke("run")
def test_the_report_goes_to_the_error_stream(folder: Path, snapshot: SnapshotAssertion) -> None:
    done = _run(folder, "bad.py")
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert _without_versions(done.stderr) == snapshot


def test_a_narrow_terminal_and_ascii_get_what_they_can_show(folder: Path, snapshot: SnapshotAssertion) -> None:
    plain = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "COLUMNS": "40"}
    done = _run(folder, "bad.py", environment=plain)
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert done.stderr.isascii()
    assert max(map(len, done.stderr.splitlines())) <= 40
    assert _without_versions(done.stderr) == snapshot


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), pytest.param({"TERM": "xterm", "NO_COLOR": "1"}, False, marks=pytest.mark.full)],
)
def test_colours_are_for_a_terminal_that_wants_them(environment: dict[str, str], coloured: bool, folder: Path) -> None:
    ours, theirs = pty.openpty()
    done = _run(folder, "bad.py", stderr=theirs, environment=environment)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 1
    assert "Inf or NaN in the loss" in shown
    # a line of progress is taken away by a code too, which is no colour
    assert bool(re.search(r"\x1b\[[\d;]*m", shown)) is coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", shown).replace("\r\x1b[2K", "").count("\x1b") == 0


def _interrupted(folder: Path, send: Callable[[subprocess.Popen[str]], None]) -> str:
    """What is said of a program that is interrupted while it waits."""
    process = subprocess.Popen(
        [sys.executable, str(WHYNAN), "run", "waiting.py"],
        cwd=folder,
        env=_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    send(process)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (-signal.SIGINT, "tidied\n")
    # Python's own traceback: which line of the loop it is, nobody knows
    seen = re.sub(r'(?<=waiting\.py", line )\d+(, in <module>\n).*\n( *\^+\n)?', r"N\1", err)
    return _without_versions(seen).replace(str(folder), "...")


def test_an_interrupt_gives_the_report_and_ends_as_python_does(folder: Path, snapshot: SnapshotAssertion) -> None:
    assert _interrupted(folder, lambda process: os.killpg(process.pid, signal.SIGINT)) == snapshot


@pytest.mark.full
def test_so_does_one_that_is_sent_to_whynan_alone(folder: Path, snapshot: SnapshotAssertion) -> None:
    assert _interrupted(folder, lambda process: process.send_signal(signal.SIGINT)) == snapshot


def test_a_program_that_is_killed_leaves_what_it_has_traced(folder: Path) -> None:
    killed = "import os, torch; torch.zeros(2).log(); os.kill(os.getpid(), 9)"
    done = _run(folder, "--trace", "trace", "-c", killed)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "", "")
    command = [sys.executable, str(WHYNAN), "report", "--quiet", "--json", "r.json", "trace"]
    subprocess.run(command, cwd=folder, env=_environment(), check=False, timeout=120)
    report = json.loads((folder / "r.json").read_text(encoding="utf-8"))
    assert (report["run"]["command"], report["run"]["exit_status"]["script"]) == ("-c ...", None)


def test_a_reader_that_has_gone_is_the_programs_affair(folder: Path) -> None:
    def broken(*command: str) -> tuple[int, str]:
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=folder,
                env=_environment(),
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        finally:
            os.close(writer)
        return done.returncode, done.stderr

    assert broken(str(WHYNAN), "run", "--quiet", "good.py") == broken("good.py")


@pytest.mark.parametrize("stream", [pytest.param("stdin", marks=pytest.mark.full), "stdout", "stderr"])
def test_a_closed_stream_changes_nothing(stream: str, folder: Path) -> None:
    number = ("stdin", "stdout", "stderr").index(stream)
    shell = f'exec "$@" {number}<&-' if number == 0 else f'exec "$@" {number}>&-'
    command = ["sh", "-c", shell, "sh", sys.executable, str(WHYNAN), "run", "bad.py"]
    done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ("" if stream == "stdout" else "done\n")
    assert ("exp-overflow" in done.stderr) is (stream != "stderr")
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_a_report_that_cannot_be_shown_still_gives_the_exit_status(folder: Path) -> None:
    assert _run(folder, "--json", "report.json", "deaf.py").returncode == 1
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["verdict"] == "nonfinite"
    with open("/dev/full", "w", encoding="utf-8") as full:
        assert _run(folder, "bad.py", stderr=full).returncode == 1


def test_a_document_on_the_output_comes_after_what_the_program_wrote_there(folder: Path) -> None:
    done = _run(folder, "--json", "-", "-c", "print('said'); import torch; torch.zeros(1).log().sum().item()")
    said, _, document = done.stdout.partition("\n")
    assert (said, json.loads(document)["schema"]) == ("said", "whynan.report/2")
    assert "Inf" in done.stderr
    assert not (folder / "-").exists()


@pytest.mark.full
def test_a_document_is_whole_and_its_owners_alone(folder: Path) -> None:
    done = _run(folder, "--quiet", "--json", "report.json", "stepping.py")
    assert (done.returncode, done.stdout, done.stderr) == (1, "0\n", "")
    assert stat.S_IMODE((folder / "report.json").stat().st_mode) == 0o600
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["verdict"] == "nonfinite"
    assert report["run"]["exit_status"] == {"script": None, "whynan": 1}
    assert report["findings"][0]["step"] == 2


@pytest.mark.full
def test_what_a_baseline_knows_is_no_error(folder: Path) -> None:
    _run(folder, "--quiet", "--json", "report.json", "bad.py")
    assert _run(folder, "--quiet", "--baseline", "report.json", "bad.py").returncode == 0


@pytest.mark.full
def test_an_error_may_be_raised_at_the_programs_own_line(folder: Path, snapshot: SnapshotAssertion) -> None:
    done = _run(folder, "--quiet", "--on-nonfinite", "raise", "stepping.py")
    assert (done.returncode, done.stdout) == (1, "0\n")
    assert done.stderr.replace(str(folder), "...") == snapshot


@pytest.mark.full
def test_a_debugger_without_a_keyboard_ends(folder: Path) -> None:
    done = _run(folder, "--quiet", "--pdb", "stepping.py")
    assert done.returncode == 1
    assert "stepping.py(8)<module>()" in done.stdout
