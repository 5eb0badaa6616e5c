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

from whynan.source.ownership import Owner, owner_of_code

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import CodeType, FrameType

    Judge: TypeAlias = Callable[[FrameType, str, Any], str | None]

_GRACE: Final = 1.0
"""So many seconds are left to what a program does as it is told that its time is over."""
_OF_OTHERS: Final = 10.0
"""So many seconds later it is told in a library's code too, which may wait for what never comes."""
_MOST_CAUGHT: Final = 3
"""So often may it catch that; then it is told at each of its lines, until one stands in no `try`."""


class Lookout:
    """Looks at the calls of this thread.

    `judge`: what a call would do that may not be, as a clause; given a profile function's arguments. `refuse` is given
    it, and raises. `seconds`: for so long the thread may run. `ending`: whether it has, and what it did is put back.
    `raises` is `refuse` where no profile function has been called.
    """

    def __init__(
        self,
        judge: Judge,
        refuse: Callable[[str], object],
        seconds: float,
        ending: Callable[[], bool],
        raises: Callable[[str], object],
    ) -> None:
        self._judge = judge
        self._refuse = refuse
        self._ending = ending
        self._raises = raises
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
            self._outer.clear()
            sys.setprofile(None)
            if callable(profile):
                sys.setprofile(profile)
            elif hasattr(profile, "enable"):
                # one that is written in C installs itself
                profile.enable()

    def _call(self, frame: FrameType, event: str, function: Any) -> None:
        if not self._on:
            return
        what = self._judge(frame, event, function)
        if what is None and self._is_over():
            if self._may_end(frame):
                what = self._tell()
            elif sys.gettrace() is not self._lines:
                # what has called this is told at its next line; of its calls it may be that only this is seen
                self._follow(frame)
        if what is not None:
            self._follow(frame)
            self._refuse(what)

    def over(self) -> bool:
        """Whether its time is over; asked from another thread."""
        return self._on and self._is_over()

    def wake(self, frame: FrameType | None, stuck: bool) -> None:
        """The thread is reached where it makes no call; `stuck`: it waits at a `with`."""
        while frame is not None and frame not in self._outer and owner_of_code(frame.f_code) is Owner.STDLIB:
            frame = frame.f_back
        if frame is None or not self._on or not (stuck or self._is_over()) or not self._may_end(frame):
            return
        self._follow(frame)
        # by no profile function, which stays
        self._raises("waits for a lock that is held" if stuck else self._tell())

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
        if event == "line" and (self._told > _MOST_CAUGHT or self._is_over()) and self._may_end(frame):
            # raised from here, it takes this function away; the next call whose time is over puts it back
            self._raises(self._tell())
        return self._lines

    def _is_over(self) -> bool:
        return monotonic() > self._until

    def _tell(self) -> str:
        self._told += 1
        self._until = monotonic() + _GRACE
        return self._over

    def _may_end(self, frame: FrameType) -> bool:
        """Whether a frame is of the program's own code that is run again; others may be about to put things back."""
        if self._ending() or frame in self._outer or _is_made_up(frame.f_code):
            return False
        owner = owner_of_code(frame.f_code)
        return owner is Owner.USER or (owner is Owner.LIBRARY and monotonic() > self._until + _OF_OTHERS)


def _is_made_up(code: CodeType) -> bool:
    """Whether a code object may be the ``__new__`` of a named tuple, which may be anybody's."""
    return code.co_filename == "<string>" and code.co_name == "<lambda>"
