"""A process that does nothing but hear the signals that its whole process group is sent."""

# pyright: strict

from __future__ import annotations

import os
import select
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

_DEATH_SIGNAL: Final = 1
"""``PR_SET_PDEATHSIG`` of Linux's prctl."""
_PATIENCE: Final = 0.05
"""Seconds for which a signal that others send to each process of a group in turn may be under way."""


class Witness:
    """Tells a signal to the whole group, which each of its processes has had, from one to this process alone.

    A terminal, ``timeout`` and ``kill 0`` send to the group; a shell's ``kill`` and a container's stop to one process.
    To be made while every signal is blocked; raises ``OSError`` where no process can be made.
    """

    def __init__(self) -> None:
        self._known = Counter[int]()
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        bind = binding()
        try:
            self._process = os.fork()
        except OSError:
            os.close(self._reader)
            os.close(writer)
            raise
        if self._process == 0:
            _hear(writer, bind)
        os.close(writer)

    def heard(self, number: int) -> bool:
        """Whether a signal that has just been received went to the group."""
        self._listen(0.0)
        if not self._known[number]:
            self._listen(_PATIENCE)
        known, self._known = self._known, Counter[int]()
        # the system tells of several as of one, to each process as it comes: what waits here may be told of already
        for other in signal.sigpending():
            self._known[other] = min(known[other], 1)
        return known[number] > 0

    def forget(self) -> None:
        """What has been heard so far is of no matter; may be called in a process that is forked from this one."""
        self._listen(0.0)
        self._known.clear()

    def end(self) -> None:
        """Have it gone."""
        with suppress(OSError):
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
        os.close(self._reader)

    def _listen(self, patience: float) -> None:
        with suppress(OSError):
            select.select([self._reader], [], [], patience)
            self._known.update(os.read(self._reader, select.PIPE_BUF))


def _hear(writer: int, bind: Callable[[], object]) -> NoReturn:
    try:
        bind()
        _keep_open(writer)
        everything = signal.valid_signals()
        while True:
            os.write(writer, bytes([signal.sigwaitinfo(everything).si_signo]))
    finally:
        os._exit(0)


def _keep_open(descriptor: int) -> None:
    """Close all others, for whom somebody may wait at the other end."""
    for name in os.listdir("/dev/fd"):
        if int(name) != descriptor:
            with suppress(OSError):
                os.close(int(name))


def binding() -> Callable[[], object]:
    """What a process calls that has just begun, so that whoever kills its parent kills it too; nothing where not Linux.

    All that it needs is found here: nothing is loaded after a fork.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except Exception:
        return _nothing
    return lambda: prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _nothing() -> None:
    return
