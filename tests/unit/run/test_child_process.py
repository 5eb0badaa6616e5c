"""A child process is waited for as long as it may take, and for as long as nobody is impatient."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from whynan.run.proof.whole_program import INTERRUPTED, run_child

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="of signals and processes of Linux's"),
]
HANGS = [sys.executable, "-S", "-c", "import time; time.sleep(1000)"]


def run(command: list[str], folder: Path, seconds: float = 100.0) -> str | None:
    return run_child(command, dict(os.environ), cwd=str(folder), seconds=seconds)


def test_a_process_that_ends_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os; print(os.getcwd()); open('made', 'w'); raise SystemExit(3)"
    assert run([sys.executable, "-S", "-c", code], tmp_path) is None
    assert (tmp_path / "made").exists()
    assert capfd.readouterr() == ("", "")


def test_a_process_that_hangs_is_cut_off(tmp_path: Path) -> None:
    assert run(HANGS, tmp_path, 0.0) == "it took more than 0 seconds"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_impatient_ends_it(number: signal.Signals, tmp_path: Path) -> None:
    before = signal.getsignal(number)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def send() -> None:
        # it has begun once it writes there
        fifo.read_text()
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()
    code = f"import time; open({str(fifo)!r}, 'w').close(); time.sleep(1000)"
    assert run([sys.executable, "-S", "-c", code], tmp_path) == INTERRUPTED
    assert signal.getsignal(number) is before
