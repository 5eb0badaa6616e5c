"""A process that stands in for another: waits for it, hands signals on, stops and ends as it does."""

# pyright: strict

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from whynan.errors import UsageError
from whynan.session.witness import Witness, binding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def _named(*names: str) -> frozenset[Any]:
    """Those signals that this system has."""
    return frozenset(getattr(signal, name) for name in names if hasattr(signal, name))


_OWN: Final = _named("SIGKILL", "SIGSTOP", "SIGCHLD")
"""Those that cannot be caught, and the one that tells of the program's process."""
_SUSPENDING: Final = _named("SIGTSTP", "SIGTTIN", "SIGTTOU")
_TERMINAL: Final = _named("SIGINT", "SIGQUIT")
_SENT: Final = _named("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
_UNDUMPABLE: Final = 4
"""``PR_SET_DUMPABLE`` of Linux's prctl."""


class Supervisor:
    """Runs one command in the same process group, terminal and working directory, with the same open files."""

    def __init__(self) -> None:
        # a signal that is ignored stays ignored, for us and for the program
        heard = (s for s in signal.valid_signals() - _OWN if signal.getsignal(s) is not signal.SIG_IGN)
        self._wanted: frozenset[Any] = frozenset((*heard, *_named("SIGCHLD")))
        self._program = 0
        self._witness: Witness | None = None

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run this Python with a command line; gives its return code, negative for the signal that it died of.

        Raises ``UsageError`` where the system does not start it.
        """
        if not hasattr(signal, "sigwaitinfo"):
            return self._run_without_senders(command, environment)
        with ExitStack() as stack:
            # from here on signals wait until somebody asks for them
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
            ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
            stack.callback(signal.signal, signal.SIGCHLD, signal.signal(signal.SIGCHLD, _nothing))
            with suppress(OSError):
                self._witness = Witness()
                stack.callback(self._witness.end)
            process = _started(command, environment, self._preparation(mask, ignored=ignored))
            self._program = process.pid
            code = process.returncode = self._wait()
            while signal.sigtimedwait(self._wanted, 0) is not None:
                pass
            return code

    def _run_without_senders(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """The same where the system does not tell who sent a signal (macOS): a terminal's are taken for the group's."""

        def hand_on(number: int, frame: object) -> None:
            del frame
            with suppress(OSError):
                os.kill(self._program, number)

        with ExitStack() as stack:
            process = _started(command, environment, None)
            self._program = process.pid
            for number in self._wanted & (_TERMINAL | _SENT):
                before = signal.signal(number, hand_on if number in _SENT else _nothing)
                stack.callback(signal.signal, number, before)
            return process.wait()

    def _preparation(self, mask: set[Any], *, ignored: bool) -> Callable[[], None]:
        """What is to be done in the program's process before it begins."""
        bind = binding()

        def prepare() -> None:
            bind()
            if self._witness is not None:
                # what came before the program, it has not had
                self._witness.forget()
            signal.signal(signal.SIGCHLD, signal.SIG_IGN if ignored else signal.SIG_DFL)
            if signal.SIGINT in self._wanted:
                # or what has arrived meanwhile would be Python's KeyboardInterrupt here
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        return prepare

    def _wait(self) -> int:
        while (code := self._ended()) is None:
            told = signal.sigwaitinfo(self._wanted)
            if told.si_signo != signal.SIGCHLD and not self._had_by_the_program(told):
                # the program's own word to its parent is meant for whoever has started us
                with suppress(OSError):
                    os.kill(os.getppid() if told.si_pid == self._program else self._program, told.si_signo)
        return code

    def _ended(self) -> int | None:
        """How the program has ended; None while it runs."""
        process, status = os.waitpid(self._program, os.WNOHANG | os.WUNTRACED)
        if process == 0:
            return None
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        number = os.WSTOPSIG(status)
        if number in _SUSPENDING & self._wanted:
            # for the shell that waits for us; where none does, the system lets us go on
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        return None

    def _had_by_the_program(self, told: signal.struct_siginfo) -> bool:
        if self._witness is None:
            return told.si_code > 0
        return self._witness.heard(told.si_signo)


def _started(
    command: Sequence[str], environment: Mapping[str, str], prepare: Callable[[], None] | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, executable=sys.executable, env=environment, close_fds=False, preexec_fn=prepare
        )
    except OSError as error:
        raise UsageError(f"Python could not be started ({error.strerror})", "give it less to begin with") from None


def _nothing(number: int, frame: object) -> None:
    del number, frame


def end_as(number: int) -> NoReturn:
    """End this process by a signal, as the other one ended, without a second core file."""
    with suppress(Exception):
        import ctypes
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.CDLL(None).prctl(_UNDUMPABLE, 0)
    with suppress(OSError, ValueError):
        # refused for those that cannot be caught
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    # one that does not end a process
    os._exit(128 + number)
