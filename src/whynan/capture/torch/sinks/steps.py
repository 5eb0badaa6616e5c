"""Which optimizers a program has, and which of their steps an event belongs to."""

from __future__ import annotations

import math
import threading
import weakref
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whynan.traces import Event, Sink


class _Midst:
    """What one thread is in the midst of: two may train at once."""

    def __init__(self) -> None:
        self.owner: int | None = None
        self.micro = 0


class Steps:
    """The attempts of every optimizer, by the events before them; those that a scaler skipped are attempts too."""

    def __init__(self) -> None:
        # by identity: an optimizer need not be hashable
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._ends: list[list[int]] = []
        self._skips: list[int] = []
        self._backwards: list[int] = []
        self._main = _Midst()
        self._others: dict[int, _Midst] = {}
        self.attempts = 0
        self.offset = 0
        """Attempts that were made before anything was looked at."""
        self.met = False
        self.concerned: Any = None
        """The optimizer whose step is looked into, where others step on the way to it."""

    @property
    def owner(self) -> int | None:
        """The number of the optimizer whose step is under way on this thread."""
        return self._here().owner

    @owner.setter
    def owner(self, number: int | None) -> None:
        self._here().owner = number

    @property
    def micro(self) -> int:
        """How many backwards this thread has begun since its last step."""
        return self._here().micro

    @micro.setter
    def micro(self, count: int) -> None:
        self._here().micro = count

    def begin_backward(self, ordinal: int) -> None:
        """A backward begins, at an event."""
        self.micro += 1
        self._backwards.append(ordinal)

    def enter_thread(self) -> None:
        """This thread is one of the program's own, with steps and backwards beside those of the others."""
        self._others[threading.get_ident()] = _Midst()

    def leave_thread(self) -> None:
        """This thread ends."""
        self._others.pop(threading.get_ident(), None)

    def begin(self, optimizer: Any) -> bool:
        """A step begins; true for the first one of its optimizer."""
        self.met = True
        number = self._number(optimizer)
        fresh = number is None
        if number is None:
            number = len(self._ends)
            self._numbers[id(optimizer)] = weakref.ref(optimizer), number
            self._ends.append([])
        self.owner = number
        return fresh

    def end(self, optimizer: Any, ordinal: int) -> None:
        """A step has ended, at an event."""
        number = self._number(optimizer)
        if number is not None:
            self._ends[number].append(ordinal)
            self.attempts = len(self._skips) + max(len(ends) for ends in self._ends)
        self.micro = 0

    def skip(self, ordinal: int) -> None:
        """A step was skipped before its optimizer was called."""
        self.met = True
        self._skips.append(ordinal)
        self.attempts += 1
        self.micro = 0

    def now(self, *, in_backward: bool) -> tuple[int, int]:
        """1 + the attempts so far, and which backward since the last; kept only if an optimizer is ever met."""
        attempts = self.attempts if self.owner is None else len(self._skips) + len(self._ends[self.owner])
        micro = self.micro if in_backward or self.owner is not None else self.micro + 1
        return self.offset + attempts + 1, max(micro, 1)

    def step_of_birth(self, ordinal: int, labels: frozenset[int], sinks: list[Sink]) -> int | None:
        """1 + the attempts, before an event, of the optimizer that consumed what was born there, or was to."""
        owners = {s.owner for s in sinks if s.owner is not None and s.labels & labels}
        if owners:
            owner = min(owners)
        elif self.concerned is not None:
            owner = self._number(self.concerned)
        elif self._ends:
            # of several that take turns, the one that has not stepped for longest
            ahead = [ends[: bisect_right(ends, ordinal)] for ends in self._ends]
            owner = min(range(len(ahead)), key=lambda number: ahead[number][-1:])
        else:
            return None
        # one that has not stepped yet has no number
        made = 0 if owner is None else bisect_right(self._ends[owner], ordinal)
        return self.offset + 1 + made + bisect_right(self._skips, ordinal)

    def micro_of(self, event: Event) -> int | None:
        """Which backward an event is of: what the last one before a step is followed by is of that one still.

        What a module computes is of the next, whether that has come or not.
        """
        if event.micro is None or event.micro < 2 or event.phase in ("backward", "accumulation", "optimizer"):
            return event.micro
        if event.site is not None and event.site.module is not None:
            return event.micro
        made = (
            ends[at] for ends in (*self._ends, self._skips) if (at := bisect_right(ends, event.ordinal)) < len(ends)
        )
        at, step = bisect_right(self._backwards, event.ordinal), min(made, default=math.inf)
        follows = at < len(self._backwards) and self._backwards[at] < step
        return event.micro if follows else event.micro - 1

    def _here(self) -> _Midst:
        # a thread of the engine's works for the first
        return self._others.get(threading.get_ident(), self._main) if self._others else self._main

    def _number(self, optimizer: Any) -> int | None:
        known = self._numbers.get(id(optimizer))
        return known[1] if known is not None and known[0]() is optimizer else None
