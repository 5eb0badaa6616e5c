"""The recorder of a run: a line for each range, and the facts as they stand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from whynan.capture.onnx.graph.sites import Places, with_module
from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.records import Range
from whynan.traces import format as layout
from whynan.traces.format import json_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.onnx.execution import Counters, Node
    from whynan.traces import Trace
    from whynan.traces.writer import TraceWriter


# -- What is written of a run while it goes on: a line for each range, and the facts as they are so far ----------------


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

    def record_range(self, found: Range) -> None:
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
        lines = [json_of(self.writer.redact_record(found)) for found in self._waiting]
        if self.writer.append(layout.RANGES, lines):
            self.ranges += len(lines)
        self._waiting.clear()

    def write_interim_facts(self, trace: Callable[[], Trace], *, now: bool = False) -> None:
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


# -- The range of a value as a record ----------------------------------------------------------------------------------


def range_of(places: Places, node: Node, position: int, counted: Counters, ordinal: int) -> Range:
    """What one value that a node wrote holds, as a report tells of it."""
    place = places.place_of(node, node.outputs[position])
    ends = [abs(end) for end in (counted.finite_min, counted.finite_max) if end is not None]
    greatest = _greatest(counted.dtype)
    return Range(
        event=ordinal,
        op=place.op,
        phase="inference",
        output=position,
        dtype=counted.dtype,
        shape=counted.shape,
        n=counted.n,
        n_nan=counted.n_nan,
        n_posinf=counted.n_posinf,
        n_neginf=counted.n_neginf,
        n_zero=counted.n_zero,
        n_subnormal=counted.n_subnormal,
        finite_min=counted.finite_min,
        finite_max=counted.finite_max,
        headroom=max(ends) / greatest if ends and greatest else None,
        node=places.event(ordinal, node, node.outputs[position]).node,
        value=place.value or None,
        provider=node.provider,
        site=with_module(place.site, place.module),
    )


def _greatest(dtype: str) -> float | None:
    """The greatest number of a dtype; None where it is no floating-point format."""
    if not dtype.startswith(("float", "bfloat")):
        return None
    try:
        return format_of(dtype).max
    except UsageError:
        return None
