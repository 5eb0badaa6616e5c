"""The trace on disk while it is made: segments of events, and facts when there is something new to tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from whynan.capture.torch.event_log import MASK
from whynan.capture.torch.sinks.sinks import Pending
from whynan.capture.torch.sites import OPTIMIZER
from whynan.source.positions import sha256_of
from whynan.traces import format as layout
from whynan.traces.format import FAILED, SiteLine, json_of, text_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from whynan.capture.torch.context import TraceContext
    from whynan.records import Range, Site
    from whynan.traces import Birth, Sink, Trace
    from whynan.traces.writer import TraceWriter


# -- The events of a trace on disk: what the ring holds, as arrays, and the names of what they are of ------------------


T = TypeVar("T")

WALKS: Final = 8
"""The modules are walked for new names when there are so much more of them, as a share: some programs make ever new."""


class Segments:
    """Copies the ring into segments, and appends the lines that they name before they are there."""

    def __init__(self, writer: TraceWriter, context: TraceContext) -> None:
        self.ranges = 0
        """Lines of ranges that were written."""
        self._writer = writer
        self._context = context
        self._next = context.first
        self._operators = _Numbers()
        self._nodes = _Numbers((None,))
        self._written: dict[str, int] = dict.fromkeys(layout.TABLES, 0)
        self._walked = 1
        # an ordinal, and step and micro from it on
        self._marks: list[tuple[int, int, int]] = [(0, 0, 0)]

    def mark(self) -> None:
        """Note where a step or a backward has ended, and what modules are called while they are there."""
        modules = len(self._context.names)
        if modules > self._walked + self._walked // WALKS:
            self._walked = modules
            self._context.names.paths()
        steps = self._context.log.steps
        step = steps.attempts + 1 if steps.met else 0
        if (step, steps.micro) != self._marks[-1][1:]:
            self._marks.append((self._context.ordinal, step, steps.micro))

    def flush(self) -> None:
        """Write what the ring holds and no segment does."""
        context = self._context
        # what an earlier turn of the ring has held is gone
        start, stop = max(self._next, (context.ordinal - 1) & ~MASK), context.ordinal
        self._next = stop
        if stop <= start or self._writer.note is not None:
            return
        if self._writer.left_out is None:
            events = self._events(start, stop)
            if self._tables():
                self._writer.segment(events)
        self.finish(context.ranges.records(self._site, self.ranges), self.ranges)

    def finish(self, ranges: Iterable[Range], first: int = 0) -> None:
        """Write those ranges that are not written, of all from one on."""
        new = list(ranges)[self.ranges - first :]
        if self._writer.append(layout.RANGES, [json_of(self._writer.redact_record(found)) for found in new]):
            self.ranges += len(new)

    def _events(self, start: int, stop: int) -> NDArray[np.void]:
        """The rows of one turn of the ring, from ordinal to ordinal."""
        rows = self._context.rows
        turn = slice(start & MASK, ((stop - 1) & MASK) + 1)
        ordinals = np.array(rows.ordinals[turn], np.int64)
        there = (ordinals >= start) & (ordinals < stop)
        made = np.zeros(len(ordinals), layout.event_dtype())
        made["ordinal"] = ordinals - self._context.first
        made["operator"] = list(map(self._operators.__getitem__, rows.operators[turn]))
        made["node"] = list(map(self._nodes.__getitem__, rows.nodes[turn]))
        made["site"], made["module"], made["phase"] = rows.sites[turn], rows.modules[turn], rows.phases[turn]
        made["step"], made["micro"] = self._steps(ordinals, made["phase"])
        return made if there.all() else made[there]

    def _steps(self, ordinals: NDArray[Any], phases: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Step and micro of events, by the marks before them."""
        marks = np.array(self._marks, np.int64)
        last = np.searchsorted(marks[:, 0], ordinals, side="right") - 1
        least = 1 if self._context.log.steps.met else 0
        micro = marks[last, 2]
        del self._marks[:-1]
        return np.maximum(marks[last, 1], least), np.where(phases == OPTIMIZER, np.maximum(micro, 1), micro + 1)

    def _tables(self) -> bool:
        """Write the lines of the tables that are new; whether all of them are there."""
        known: dict[str, Iterable[str | None]] = {
            layout.OPERATORS: (getattr(o, "name", None) for o in self._new(layout.OPERATORS, list(self._operators))),
            layout.NODES: (getattr(n, "__name__", None) for n in self._new(layout.NODES, list(self._nodes))),
            layout.MODULES: self._new(layout.MODULES, self._context.names.paths()),
        }
        lines = {table: [text_line(self._writer.name(table, n)) for n in names] for table, names in known.items()}
        numbers = range(len(self._context.sites))
        lines[layout.SITES] = [self._site_line(number) for number in self._new(layout.SITES, numbers)]
        return all(self._append(table, new) for table, new in lines.items())

    def _new(self, table: str, known: Sequence[T]) -> Sequence[T]:
        return known[self._written[table] :]

    def _append(self, table: str, lines: list[str]) -> bool:
        done = self._writer.append(table, lines)
        self._written[table] += len(lines) if done else 0
        return done

    def _site(self, number: int) -> Site | None:
        return self._context.sites.resolve(number, None)[0]

    def _site_line(self, number: int) -> str:
        site, library = self._context.sites.resolve(number, None)
        if site is None:
            return "null"
        private = self._writer.redact_record
        return json_of(SiteLine(site=private(site), library_site=None if library is None else private(library)))


class _Numbers(dict[Any, int]):
    """Numbers of objects, given in the order in which they are met."""

    def __init__(self, known: Iterable[Any] = ()) -> None:
        super().__init__()
        for value in known:
            self[value] = len(self)

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


# -- A trace on disk while it is made: events when the ring is full, facts when there is something new to tell ---------


FREE: Final = 1.0
SHARE: Final = 0.02
"""Seconds, and the share of the run's time, that facts may be written for before the run ends."""


class Recording:
    """Hands to a writer what a trace sees; it is told when the ring is full and when a stretch of the run has ended.

    `so_far`: the facts with some more sinks. `clock`: seconds, of which the time for writing facts is taken.
    """

    def __init__(
        self,
        writer: TraceWriter,
        context: TraceContext,
        so_far: Callable[[Iterable[Sink]], Trace],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.writer = writer
        self._context = context
        self._so_far = so_far
        self._segments = Segments(writer, context)
        self._pending = Pending(context)
        self._clock = clock
        self._begun = clock()
        self._spent = 0.0
        self._told: Any = None
        self._broken = False
        self._sources: dict[str, str] = {}

    def full(self) -> None:
        """The ring is full: what it holds becomes a segment before it is overwritten."""
        self._safely(self._segments.flush)
        self._safely(self._facts)

    def write_new_facts(self) -> None:
        """A step, a backward or an outermost call has ended: facts that are new are written."""
        if self.writer.note is None:
            self._safely(self._news)

    def close(self) -> None:
        """The ring is about to be emptied: what it holds becomes the last segment."""
        self._safely(self._segments.flush)

    def finish(self, trace: Trace) -> None:
        """The capture has ended with this trace, which is told what could not be written of it."""
        self._safely(lambda: self._finish(trace))
        trace.coverage = self.writer.with_notes(trace.coverage)
        if self._broken and not trace.failed:
            trace.failed = True
            trace.coverage = trace.coverage.with_notes(FAILED)

    def _safely(self, act: Callable[[], object]) -> None:
        """Do something of this, unless some of it has failed before: that is an error of our own, told once."""
        if self._broken:
            return
        try:
            act()
        except Exception:
            self._broken = True
            if not self._context.failed and self._context.fail():
                raise

    def _news(self) -> None:
        self._segments.mark()
        news = (len(self._context.labels.births), self._pending.places())
        if news != self._told and self._facts():
            self._told = news

    def _finish(self, trace: Trace) -> None:
        self._segments.finish(trace.ranges)
        trace.coverage = self.writer.with_notes(trace.coverage)
        self.writer.facts(trace, self._sources_of(trace.births), len(trace.ranges))

    def _facts(self) -> bool:
        """Write the facts as they would be if the run ended now; not now where that has taken too long already."""
        start = self._clock()
        if self._spent > FREE + SHARE * (start - self._begun):
            return False
        trace = self._so_far(self._pending.sinks())
        done = self.writer.facts(trace, self._sources_of(trace.births), self._segments.ranges)
        self._spent += self._clock() - start
        return done

    def _sources_of(self, births: Iterable[Birth]) -> dict[str, str]:
        """The SHA-256 of the files that births stand in, as they were when they were first met."""
        for birth in births:
            for site in (birth.event.site, birth.event.library_site):
                if site is not None and site.file not in self._sources:
                    self._sources[site.file] = sha256_of(site.file) or ""
        return {file: digest for file, digest in self._sources.items() if digest}
