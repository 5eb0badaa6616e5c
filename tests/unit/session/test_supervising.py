"""A process that stands in for another: what it starts it with, what signals it hands on, and how it ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.errors import UsageError
from whynan.session.supervising import Supervisor

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
STAND_IN = """
import os, sys
from whynan.session import supervising
{before}
code = supervising.Supervisor().run([sys.executable, "-c", sys.argv[1]], dict(os.environ))
if code < 0:
    supervising.end_as(-code)
sys.exit(code)
"""

# tells each signal that it has and when it is ready for them; ends at the end of its input
LISTENER = """
import os, signal, sys, threading
heard = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCONT, signal.SIGINT, signal.SIGQUIT)
heard += (signal.SIGRTMIN + 3, signal.SIGRTMIN + 4)
heard = [number for number in heard if signal.getsignal(number) is not signal.SIG_IGN]
# one after the other: the handler of a signal that comes with another may run before the other's
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
def listen():
    while True:
        os.write(1, b"%d\\n" % signal.sigwait(heard))
threading.Thread(target=listen, daemon=True).start()
os.write(1, f"ready {os.getpid()}\\n".encode())
sys.stdin.read()
os.write(1, b"end\\n")
"""


LAST = signal.SIGRTMIN + 4
"""Of those that wait it is had last."""


def _hear_hangups() -> None:
    # tests that run without a terminal (nohup) may begin with it ignored
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Standing:
    """A stand-in in a group of its own, and the program that it has started."""

    def __init__(self, program: str = LISTENER, *, before: str = "", group: bool = True, **more: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STAND_IN.format(before=before), program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=group,
            cwd=ROOT,
            **{"preexec_fn": _hear_hangups, **more},
        )
        self.program = int(self.line().split()[1]) if program == LISTENER else 0

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def heard(self, last: int = LAST) -> list[str]:
        """What the program has heard and nobody has read, up to a last signal to the stand-in alone."""
        os.kill(self.process.pid, last)
        heard: list[str] = []
        while (line := self.line()) != str(int(last)):
            assert line, "the program has ended"
            heard.append(line)
        return heard

    def end(self) -> tuple[int, str]:
        """Let the program end; the stand-in's status, and the rest of what it wrote."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, (out + err).decode()


@pytest.fixture
def standing() -> Iterator[list[Standing]]:
    """Those that are to be gone at the end."""
    made: list[Standing] = []
    yield made
    for one in made:
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.communicate()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT", "SIGQUIT", "SIGCONT", "SIGRTMIN"])
def test_a_signal_to_the_stand_in_reaches_the_program_once(name: str, standing: list[Standing]) -> None:
    one = Standing()
    standing.append(one)
    number = signal.SIGRTMIN + 3 if name == "SIGRTMIN" else signal.Signals[name]
    os.kill(one.process.pid, number)
    assert one.line() == str(int(number))
    assert one.heard() == []
    assert one.end() == (0, "end\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_to_the_whole_group_reaches_the_program_once(name: str, standing: list[Standing]) -> None:
    one = Standing()
    standing.append(one)
    for _ in range(3):
        os.killpg(one.process.pid, signal.Signals[name])
        assert one.line() == str(int(signal.Signals[name]))
    assert one.heard() == []
    # and after that one to the stand-in alone still does
    os.kill(one.process.pid, signal.Signals[name])
    assert one.line() == str(int(signal.Signals[name]))
    assert one.end() == (0, "end\n")


def test_a_witness_that_hears_nothing_would_be_noticed(standing: list[Standing]) -> None:
    reader, writer = os.pipe()
    # it does not look before the program has had the signal
    before = f"supervising.Witness.heard = lambda self, number: not os.read({reader}, 1)"
    one = Standing(before=before, pass_fds=[reader])
    standing.append(one)
    os.killpg(one.process.pid, signal.SIGTERM)
    assert one.line() == "15"
    os.write(writer, b"..")
    assert one.heard() == ["15"]
    os.close(reader)
    os.close(writer)


def test_without_a_witness_a_signal_is_still_handed_on(standing: list[Standing]) -> None:
    before = "def none(): raise BlockingIOError(11, 'no more processes')\nsupervising.Witness = none"
    one = Standing(before=before)
    standing.append(one)
    os.kill(one.process.pid, signal.SIGTERM)
    assert one.line() == "15"
    assert one.end() == (0, "end\n")


def test_what_the_program_tells_its_parent_reaches_whoever_started_it() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: heard.append(number))
    try:
        one = Standing("import os, signal; os.kill(os.getppid(), signal.SIGUSR2)")
        assert one.end() == (0, "")
        deadline = time.monotonic() + 10
        while not heard and time.monotonic() < deadline:
            signal.sigtimedwait([], 0.01)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert heard == [signal.SIGUSR2]


def test_an_ignored_signal_is_ignored_by_both(standing: list[Standing]) -> None:
    # as nohup does, and a shell with a job in the background
    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)

    one = Standing(preexec_fn=ignore)
    standing.append(one)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(one.process.pid, number)
        os.killpg(one.process.pid, number)
    assert one.heard() == []
    assert one.end() == (0, "end\n")


def test_whoever_kills_the_stand_in_kills_the_program_and_leaves_nothing(standing: list[Standing]) -> None:
    one = Standing()
    standing.append(one)
    one.process.kill()
    assert one.process.stdout is not None
    # nobody holds the other end any more: program and witness are gone
    assert one.process.stdout.read() == b""
    assert one.process.wait() == -signal.SIGKILL


def processes_of(group: int) -> list[str]:
    """The states of the processes of a group, as the system knows them."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                found.append(fields[0])
    return found


def until(states: list[str], group: int) -> bool:
    """Wait until the processes of a group have these states."""
    deadline = time.monotonic() + 20
    while sorted(processes_of(group)) != sorted(states) and time.monotonic() < deadline:
        signal.sigtimedwait([], 0.01)
    return sorted(processes_of(group)) == sorted(states)


def test_no_process_is_left_behind(standing: list[Standing]) -> None:
    one = Standing()
    standing.append(one)
    assert len(processes_of(one.process.pid)) == 3
    one.end()
    assert processes_of(one.process.pid) == []


def test_a_stopped_program_stops_its_stand_in_and_goes_on_with_it(standing: list[Standing]) -> None:
    # a group of this session: in one of its own there is no shell that could let it go on, and nothing stops
    one = Standing(group=False, process_group=0)
    standing.append(one)
    os.kill(one.process.pid, signal.SIGTSTP)
    assert until(["T", "T", "S"], one.process.pid), processes_of(one.process.pid)
    os.kill(one.process.pid, signal.SIGCONT)
    assert one.line() == str(int(signal.SIGCONT))
    assert until(["S", "S", "S"], one.process.pid), processes_of(one.process.pid)
    assert one.end() == (0, "end\n")


ENDS = {
    "pass": 0,
    "import sys; sys.exit(7)": 7,
    "import os; os._exit(255)": 255,
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": -signal.SIGTERM,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "import os; os.abort()": -signal.SIGABRT,
    "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 5)": -(signal.SIGRTMIN + 5),
    "raise KeyboardInterrupt": -signal.SIGINT,
}


@pytest.mark.parametrize("program", ENDS)
def test_the_stand_in_ends_as_the_program_does(program: str) -> None:
    assert Standing(program).end()[0] == ENDS[program]


def test_the_program_begins_with_what_the_stand_in_began_with() -> None:
    program = (
        "import json, os, signal\n"
        "lines = [line for line in open('/proc/self/status') if line.startswith('Sig')]\n"
        "print(json.dumps([lines, sorted(os.listdir('/proc/self/fd')), os.getpgrp(), os.getsid(0), os.getcwd(),\n"
        "    os.get_inheritable(0)]))"
    )

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    bare = subprocess.run(
        [sys.executable, "-c", program], preexec_fn=prepare, cwd=ROOT, capture_output=True, check=True
    )
    one = Standing(program, preexec_fn=prepare, group=False)
    status, out = one.end()
    assert status == 0
    assert json.loads(out) == json.loads(bare.stdout)


def test_an_ignored_child_signal_does_not_hide_the_end() -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    assert Standing("import sys; sys.exit(9)", preexec_fn=ignore).end()[0] == 9


def test_an_open_file_is_the_programs_too(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        one = Standing(f"import os; os.write({file.fileno()}, b'here')", pass_fds=[file.fileno()])
        assert one.end() == (0, "")
    assert (tmp_path / "file").read_bytes() == b"here"


def test_what_the_system_does_not_start_is_refused(snapshot: SnapshotAssertion) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGCHLD)
    with pytest.raises(UsageError) as caught:
        Supervisor().run([sys.executable, "-c", "x" * 3_000_000], dict(os.environ))
    assert str(caught.value) == snapshot
    # and all is as it was
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGCHLD)) == before


def test_no_second_core_is_left(tmp_path: Path) -> None:
    def cores() -> None:
        with suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    program = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()"
    command = [sys.executable, "-c", STAND_IN.format(before=f"sys.path[:0] = [{str(ROOT / 'src')!r}]"), program]
    result = subprocess.run(command, preexec_fn=cores, cwd=tmp_path, check=False, capture_output=True)
    assert result.returncode == -signal.SIGABRT
    assert list(tmp_path.iterdir()) == []


# -- where the system does not tell who sent a signal ------------------------------------------------------------------

BLIND = "import signal\ndel signal.sigwaitinfo"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_sent_signal_is_handed_on_without_a_sender(name: str, standing: list[Standing]) -> None:
    one = Standing(before=BLIND)
    standing.append(one)
    os.kill(one.process.pid, signal.Signals[name])
    assert one.line() == str(int(signal.Signals[name]))
    assert one.end() == (0, "end\n")


def test_a_terminals_signal_is_left_to_the_program_without_a_sender(standing: list[Standing]) -> None:
    one = Standing(before=BLIND)
    standing.append(one)
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.line() == "2"
    assert one.heard(signal.SIGUSR1) == []
    assert one.end() == (0, "end\n")


@pytest.mark.parametrize("program", list(ENDS)[:4])
def test_the_end_is_the_programs_without_a_sender(program: str) -> None:
    assert Standing(program, before=BLIND).end()[0] == ENDS[program]
