"""Each call of a thread is looked at before it is made, for a limited time; one that may not be made is refused.

Python takes a profile function away once it has raised. What a program does with the refusal, in a `finally` or in a
loop that catches everything, is looked at all the same: the exception is followed up, and the function put there again.
"""

# pyright: strict

from __future__ import annotations

import sys
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    Judge: TypeAlias = Callable[[FrameType, str, Any], str | None]

_GRACE: Final = 1.0
"""So many seconds are left to what a program does as it is told that its time is over."""
_MOST_CAUGHT: Final = 3
"""So often may it catch that; then it is told at each of its lines, until one stands in no `try`."""


class Lookout:
    """Looks at the calls of this thread.

    `judge`: what a call would do that may not be, as a clause; given a profile function's arguments. `refuse` is given
    it, and raises. `seconds`: for so long the thread may run.
    """

    def __init__(self, judge: Judge, refuse: Callable[[str], object], seconds: float) -> None:
        self._judge = judge
        self._refuse = refuse
        self._over = f"takes more than {seconds:,.0f} seconds"
        self._until = monotonic() + seconds
        self._told = 0
        self._on = True
        self._outer: set[FrameType] = set()
        # one of each: a method is another object each time that it is asked for
        self._calls, self._lines = self._call, self._line

    @contextmanager
    def looking(self) -> Generator[None]:
        """Look at the calls of the body."""
        profile: Any = sys.getprofile()
        trace: Any = sys.gettrace()
        frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            self._outer.add(frame)
            frame = frame.f_back
        try:
            sys.setprofile(self._calls)
            yield
        finally:
            # frames that were followed up are asked about their lines by another one's function too
            self._on = False
            if sys.gettrace() is not trace:
                sys.settrace(trace)
            sys.setprofile(None)
            if profile is not None and not callable(profile):
                # one that is written in C installs itself
                profile.enable()
            elif profile is not None:
                sys.setprofile(profile)
            self._outer.clear()

    def _call(self, frame: FrameType, event: str, function: Any) -> None:
        what = self._judge(frame, event, function)
        if what is None and monotonic() > self._until and self._may_end(frame):
            self._told += 1
            self._until = monotonic() + _GRACE
            what = self._over
        if what is not None:
            self._follow(frame)
            self._refuse(what)

    def _follow(self, frame: FrameType | None) -> None:
        """Be told where an exception goes from here."""
        while frame is not None and frame not in self._outer:
            frame.f_trace = self._lines
            frame = frame.f_back
        sys.settrace(self._lines)

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        del arg
        if not self._on:
            return None
        sys.setprofile(self._calls)
        if event == "line" and self._told > _MOST_CAUGHT and self._may_end(frame):
            # raised from here, it takes this function away; the next call whose time is over puts it back
            self._refuse(self._over)
        return self._lines

    def _may_end(self, frame: FrameType) -> bool:
        """Whether a frame is of the program's own code that is run again; others may be about to put things back."""
        return owner_of(frame.f_code.co_filename) is Owner.USER and frame not in self._outer
