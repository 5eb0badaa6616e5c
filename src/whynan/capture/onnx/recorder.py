"""What is written of a run while it goes on: a line for each range, and the facts as they are so far."""

# pyright: strict

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from whynan.traces import format as layout
from whynan.traces.documents import written

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.records import Range
    from whynan.traces import Trace
    from whynan.traces.writing import TraceWriter

LIMIT: Final = 200_000
"""Ranges of one run."""
TOGETHER: Final = 256
INTERVAL: Final = 1.0
"""Seconds between two times that the facts of a run that goes on are written; longer where that takes long."""
SHARE: Final = 20
"""Writing them takes at most this part of the time."""


class Recorder:
    """Writes into the folder of a trace; without a writer it keeps the ranges, for who asks for the facts."""

    def __init__(self, writer: TraceWriter | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.writer = writer
        self.kept: list[Range] = []
        self.ranges = 0
        self.omitted = 0
        self._waiting: list[Range] = []
        self._clock = clock
        self._next = clock() + INTERVAL

    def range(self, found: Range) -> None:
        """One value that a node wrote."""
        if self.ranges + len(self._waiting) + len(self.kept) >= LIMIT:
            self.omitted += 1
        elif self.writer is None:
            self.kept.append(found)
        else:
            self._waiting.append(found)
            if len(self._waiting) >= TOGETHER:
                self.flush()

    def flush(self) -> None:
        """Write the ranges that wait."""
        if self.writer is None or not self._waiting:
            return
        lines = [written(self.writer.private(found)) for found in self._waiting]
        if self.writer.append(layout.RANGES, lines):
            self.ranges += len(lines)
        self._waiting.clear()

    def so_far(self, trace: Callable[[], Trace], *, now: bool = False) -> None:
        """Write the facts as they would be if the run ended now, where some time has gone since, or `now`."""
        start = self._clock()
        if self.writer is None or (start < self._next and not now):
            return
        self.flush()
        self.writer.facts(trace(), {}, self.ranges)
        end = self._clock()
        self._next = end + max(INTERVAL, SHARE * (end - start))

    def finish(self, trace: Trace) -> None:
        """Write the facts of a run that has ended, or has come to no end."""
        self.flush()
        trace.ranges = tuple(self.kept)
        if self.writer is None:
            return
        trace.coverage = self.writer.with_notes(trace.coverage)
        self.writer.facts(trace, {}, self.ranges)
