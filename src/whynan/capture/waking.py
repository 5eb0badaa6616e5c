"""The main thread is woken by a signal where it waits without a call, or goes round a loop without one.

A lock that is entered by `with` is such a wait, and of a thread that runs code again it may be the thread's own lock.
Linux and other systems with realtime signals; elsewhere, and in other threads, nothing wakes.
"""

# pyright: strict

from __future__ import annotations

import dis
import signal
import sys
import threading
import time
from _thread import allocate_lock, start_new_thread
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

_EVERY: Final = 0.5
"""Seconds from one look at the thread to the next."""
_AT_MOST: Final = 10.0
"""So long its end is waited for; a look takes next to nothing."""
_STUCK: Final = 6
"""So many looks on end at the same `with`, and none of them has seen it compute, are a wait for itself."""
_ENTERS: Final = frozenset(
    code for name, code in dis.opmap.items() if name in ("BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL")
)


@contextmanager
def woken(over: Callable[[], bool], tell: Callable[[FrameType | None, bool], object]) -> Generator[None]:
    """Run the body; in it `tell` is called with the frame that is reached, and may raise.

    That is so where `over` says that its time is, and where it waits at a `with`: then with True.
    """
    number = _unused()
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    watcher = _Watcher(number, over)
    before = signal.signal(number, lambda _, frame: tell(frame, watcher.stuck))
    try:
        watcher.start()
        yield
    finally:
        try:
            watcher.end()
        finally:
            signal.signal(number, before)


def _unused() -> signal.Signals | int | None:
    """A signal that nobody uses."""
    last: int | None = getattr(signal, "SIGRTMAX", None)
    if last is None or not hasattr(signal, "pthread_kill"):
        return None
    numbers = range(last - 4, last - 20, -1)
    return next((n for n in numbers if signal.getsignal(n) is signal.SIG_DFL), None)


class _Watcher:
    """Looks at the thread that has made it, from another one."""

    def __init__(self, number: int, over: Callable[[], bool]) -> None:
        self.stuck = False
        self._number = number
        self._over = over
        self._thread = threading.get_ident()
        self._clock: int | None = None
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(self._thread)
        self._ended, self._gone = allocate_lock(), allocate_lock()

    def start(self) -> None:
        """Begin to look; no thread of `threading`'s, which the program may count or replace."""
        self._ended.acquire()
        self._gone.acquire()
        try:
            start_new_thread(self._run, ())
        except BaseException:
            self._gone.release()
            raise

    def end(self) -> None:
        """Look no more; no signal comes after this."""
        if self._ended.locked():
            self._ended.release()
            self._gone.acquire(timeout=_AT_MOST)

    def _run(self) -> None:
        try:
            last, count = self._place(), 0
            while not self._ended.acquire(timeout=_EVERY):
                place = self._place()
                count = count + 1 if place is not None and place == last else 0
                last = place
                if self._over() or count >= _STUCK:
                    self.stuck, count = count >= _STUCK, 0
                    signal.pthread_kill(self._thread, self._number)
        finally:
            self._gone.release()

    def _place(self) -> tuple[Any, ...] | None:
        """Where the thread enters a `with`, and how much it has computed so far; None where it does not."""
        frame = sys._current_frames().get(self._thread)  # pyright: ignore[reportPrivateUsage]
        if frame is None or self._clock is None:
            return None
        at = frame.f_lasti
        if not 0 <= at < len(frame.f_code.co_code) or frame.f_code.co_code[at] not in _ENTERS:
            return None
        # in tens of milliseconds: to be asked where it is costs it nothing, to be woken a little
        return id(frame), at, int(time.clock_gettime(self._clock) * 100)
