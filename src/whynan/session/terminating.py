"""A program that its launcher tells to terminate (SIGTERM), and that leaves its report before it does.

One of several processes stands in a collective as a rule, where Python runs no handler: a thread is told as well.
"""

# pyright: strict

from __future__ import annotations

import os
import signal
import threading
from _thread import start_new_thread
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE: Final = 1.0
"""Seconds after which the main thread runs no handler."""


class Terminating:
    """Calls `report` at the first SIGTERM, and then ends the process by it, unless `report` says that it is to go on.

    Nothing is done where the program, or what has started it, handles the signal by itself.
    """

    def __init__(self, report: Callable[[], bool]) -> None:
        self._report = report
        self._met = threading.Event()
        self._one = threading.RLock()
        self._pipe: tuple[int, int] | None = None

    def begin(self) -> None:
        """Listen from here on; only the main thread can begin it."""
        if threading.current_thread() is not threading.main_thread() or os.name != "posix":
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        reader, writer = self._pipe = os.pipe()
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if before != -1:
            # an event loop's, which would miss what it waits for
            signal.set_wakeup_fd(before)
        signal.signal(signal.SIGTERM, self._handle)
        start_new_thread(self._listen, (reader,))

    def forked(self) -> None:
        """In a child of the program's, which ends by the signal as any process does."""
        if self._pipe is None:
            return
        with suppress(ValueError, OSError):
            if self._is_ours():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            other = signal.set_wakeup_fd(-1)
            if other not in (-1, self._pipe[1]):
                signal.set_wakeup_fd(other)
        self._pipe = None

    def _is_ours(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._handle

    def _handle(self, number: int, frame: object) -> None:
        del number, frame
        self._met.set()
        self._end()

    def _listen(self, reader: int) -> None:
        """Wait in a thread for the number of the signal, which is written there wherever the main thread stands."""
        with suppress(OSError):
            while told := os.read(reader, 1):
                if told[0] == signal.SIGTERM and self._is_ours() and not self._met.wait(_PATIENCE):
                    self._end()

    def _end(self) -> None:
        # another thread waits here for the end of the process
        with self._one:
            if not self._report():
                return
            # by the system's own function: Python's can be called from the main thread alone
            import ctypes

            ctypes.CDLL(None).signal(signal.SIGTERM, None)
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                signal.pause()
