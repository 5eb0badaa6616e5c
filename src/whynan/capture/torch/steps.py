"""Which optimizers a program has, and which of their steps an event belongs to."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whynan.traces import Sink


class Steps:
    """The attempts of every optimizer, by the events before them; those that a scaler skipped are attempts too."""

    def __init__(self) -> None:
        # by identity: an optimizer need not be hashable
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._ends: list[list[int]] = []
        self._skips: list[int] = []
        self.owner: int | None = None
        """The number of the optimizer whose step is under way."""
        self.micro = 0
        self.attempts = 0
        self.offset = 0
        """Attempts that were made before anything was looked at."""
        self.met = False

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

    def at(self, ordinal: int, labels: frozenset[int], sinks: list[Sink]) -> int | None:
        """1 + the attempts, before an event, of the optimizer that consumed what was born there; None if unknown."""
        owners = {s.owner for s in sinks if s.owner is not None and s.labels & labels}
        owner = min(owners) if owners else (0 if len(self._ends) == 1 else None)
        if owner is None:
            return None
        return self.offset + 1 + bisect_right(self._ends[owner], ordinal) + bisect_right(self._skips, ordinal)

    def _number(self, optimizer: Any) -> int | None:
        known = self._numbers.get(id(optimizer))
        return known[1] if known is not None and known[0]() is optimizer else None
