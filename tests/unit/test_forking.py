"""What begins in a fork sees of its start what it sees where Python starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forking

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="forks a loaded interpreter")]

PROGRAM = """\
import os, signal, sys, traceback

print(sys.argv, sys.orig_argv[1:], sys.path, __name__, __file__, __spec__ is None, sorted(vars()))
print(os.getcwd(), sorted(os.environ.items()), sys.stdin.read(), sys.stdout.isatty(), sys.stdout.encoding)
print([frame.name for frame in traceback.extract_stack()][-1], signal.getsignal(signal.SIGINT))
print("é", file=sys.stderr)
match sys.argv[-1]:
    case "raise":
        raise ValueError("it failed")
    case "kill":
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    case status:
        sys.exit(int(status))
"""


def started(command: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # pyright: ignore


@pytest.mark.parametrize("last", ["0", "7", "kill"])
@pytest.mark.parametrize("by", ["path", "module"])
def test_a_program_sees_the_same_start(by: str, last: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, *(["program.py"] if by == "path" else ["-m", "program"]), "-x", last]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OTHER": "1"}
    forked = forking.run(command, cwd=tmp_path, env=environment, input="given")
    real = started(command, cwd=tmp_path, env=environment, input="given")
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)
    assert forked.returncode == (-signal.SIGKILL if last == "kill" else int(last))


def test_an_exception_ends_it_with_its_own_frames(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = forking.run([sys.executable, "program.py", "raise"], cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: it failed\n")
    assert f'File "{tmp_path / "program.py"}", line 9' in done.stderr


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("while True: pass\n", encoding="utf-8")
    with pytest.raises(TimeoutError):
        forking.run([sys.executable, "program.py"], cwd=tmp_path, env=forking.ENVIRONMENT, timeout=0.5)
    assert forking.run([sys.executable, "-m", "this"], cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (["-c", "import sys; print('torch' in sys.modules)"], {}),
        (["program.py"], {"PYTHONPATH": "elsewhere"}),
    ],
)
def test_what_is_the_interpreters_affair_is_started(command: list[str], more: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys; print('torch' in sys.modules)\n", encoding="utf-8")
    done = forking.run([sys.executable, *command], cwd=tmp_path, env={**os.environ, **more})
    assert done.stdout == "False\n"
