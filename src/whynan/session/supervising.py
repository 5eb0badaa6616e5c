"""A process that stands in for another: waits for it, hands signals on, ends as it ended."""

# pyright: strict

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

_HANDED_ON: Final = frozenset(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH", "SIGALRM")
    if hasattr(signal, name)
)
_DEATH_SIGNAL: Final = 1
"""``PR_SET_PDEATHSIG`` of Linux's prctl."""


class Supervisor:
    """Runs one command in the same process group, terminal and working directory, with the same open files."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def run(self, command: Sequence[str], environment: dict[str, str]) -> int:
        """Run this Python with a command line; gives its return code, negative for the signal that it died of."""
        # a signal that is ignored stays ignored, for us and for the program
        heard = [s for s in _HANDED_ON if signal.getsignal(s) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._hear) for number in heard}
        try:
            self._process = subprocess.Popen(
                command,
                executable=sys.executable,
                env=environment,
                close_fds=False,
                restore_signals=True,
                preexec_fn=_die_with_parent,
            )
            for number in self._early:
                self._hand_on(number)
            return self._wait(heard)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: object) -> None:
        del frame
        if self._process is None:
            self._early.append(number)
        else:
            self._hand_on(number)

    def _wait(self, heard: list[int]) -> int:
        process = self._process
        assert process is not None
        if not hasattr(signal, "sigwaitinfo"):
            return process.wait()
        # who sent a signal tells whether the program has had it already
        wanted: set[Any] = {*heard, signal.SIGCHLD}
        signal.signal(signal.SIGCHLD, _nothing)
        signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        try:
            while (code := process.poll()) is None:
                told = signal.sigwaitinfo(wanted)
                if told.si_signo != signal.SIGCHLD and told.si_code <= 0 and told.si_pid != process.pid:
                    self._hand_on(told.si_signo)
            return code
        finally:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)

    def _hand_on(self, number: int) -> None:
        if self._process is not None:
            with suppress(OSError):
                os.kill(self._process.pid, number)


def _nothing(number: int, frame: object) -> None:
    del number, frame


def _die_with_parent() -> None:
    """In the program's process, before it begins: whoever kills the one that stands in for it, kills it."""
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def end_as(number: int) -> NoReturn:
    """End this process by a signal, as the other one ended, without a second core file."""
    with suppress(Exception):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
    # blocked, or one that does not end a process
    os._exit(128 + number)
