"""A time limit: an interval timer ends what runs too long, by an exception in the main thread.

The program's own handler of ``SIGALRM`` and its running timer are put back afterwards, less the time that has passed.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Any, Final

from whynan.source.ownership import Owner, owner_of_code

_GRACE: Final = 1.0
"""Seconds from one refusal to the next: what the program does as it ends has so long."""
_LIBRARY_GRACE: Final = 10.0
"""Seconds that a library has more: its code may be about to put things back."""


def obstacle() -> str | None:
    """Why there can be no time limit here, as a clause; None where there can."""
    if not hasattr(signal, "setitimer"):
        return "could not be ended on this system, which has no interval timer"
    if threading.get_ident() != threading.main_thread().ident:
        return "could not be ended, as it runs outside of the main thread"
    if signal.getsignal(signal.SIGALRM) is None:
        return "could not be ended, as C code handles SIGALRM"
    return None


class TimeLimit:
    """Calls `refuse`, which raises, where code of the program runs after that many seconds, until it ends.

    The program may catch the first refusal; from the second on each line of its frames is refused too, so that one
    stands in no `try`.
    """

    def __init__(self, seconds: float, refuse: Callable[[str], object]) -> None:
        self._refuse = refuse
        self._what = f"takes more than {seconds:,.0f} seconds"
        self._seconds = seconds
        self._caught = False
        self._armed = True

    def start(self) -> None:
        """Begin; the caller's frame and those below it are never refused a line."""
        self._outer: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        self._trace: Any = sys.gettrace()
        self._began = monotonic()
        self._timer = signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._handler = signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, _GRACE)

    def disarm(self) -> None:
        """Refuse nothing from here on."""
        self._armed = False

    def end(self) -> None:
        """Put the program's handler, timer and trace function back."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self._handler)
        left, interval = self._timer
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (monotonic() - self._began), 1e-6), interval)
        if sys.gettrace() is not self._trace:
            sys.settrace(self._trace)
        self._outer = None

    def _tick(self, _number: int, frame: FrameType | None) -> None:
        if not self._armed or not self._is_programs(frame):
            return
        if self._caught:
            while frame is not None and frame is not self._outer:
                if owner_of_code(frame.f_code) is Owner.USER:
                    frame.f_trace = self._line
                frame = frame.f_back
            sys.settrace(_no_call)
        self._caught = True
        self._refuse(self._what)

    def _line(self, _frame: FrameType, event: str, _value: Any) -> Any:
        if event == "line" and self._armed:
            self._refuse(self._what)
        return self._line

    def _is_programs(self, frame: FrameType | None) -> bool:
        """Whether code of the program runs, perhaps in a call of Python's own; others may be putting things back."""
        # what a named tuple is made by is `<string>`, whoever makes it
        while frame is not None and (
            owner_of_code(frame.f_code) is Owner.STDLIB or frame.f_code.co_filename == "<string>"
        ):
            frame = frame.f_back
        owner = None if frame is None else owner_of_code(frame.f_code)
        late = monotonic() - self._began > self._seconds + _LIBRARY_GRACE
        return owner is Owner.USER or (owner is Owner.LIBRARY and late)


def _no_call(_frame: FrameType, _event: str, _value: Any) -> None:
    """Trace no further function."""
