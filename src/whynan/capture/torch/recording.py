"""A trace on disk while it is made: events when the ring is full, facts when there is something new to tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.capture.torch.lanes import OPTIMIZER
from whynan.capture.torch.pending import Pending
from whynan.capture.torch.rows import MASK
from whynan.source.fingerprint import sha256_of
from whynan.traces import format as layout
from whynan.traces.documents import SiteLine, text_line, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from whynan.capture.torch.capture import Capture
    from whynan.traces import Birth, Trace
    from whynan.traces.writing import TraceWriter

FREE: Final = 1.0
SHARE: Final = 0.02
"""Seconds, and the share of the run's time, that facts may be written for before the run ends."""


class Recording:
    """Hands to a writer what a capture sees; the capture tells it when the ring is full and when a stretch has ended.

    `clock`: seconds, of which the time for writing facts is taken.
    """

    def __init__(self, writer: TraceWriter, capture: Capture, clock: Callable[[], float] = time.perf_counter) -> None:
        self.writer = writer
        self._capture = capture
        self._tracer = capture.tracer
        self._pending = Pending(capture.tracer.bad.sinks)
        self._clock = clock
        self._begun = clock()
        self._spent = 0.0
        self._told: Any = None
        self._next = self._tracer.first
        self._operators = _Numbers()
        self._nodes = _Numbers((None,))
        self._marks: list[tuple[int, int, int]] = [(0, 0, 0)]
        self._lines = {layout.SITES: 0, layout.MODULES: 0, layout.RANGES: 0}
        self._sources: dict[str, str] = {}

    # -- when ----------------------------------------------------------------------------------------------------

    def full(self) -> None:
        """The ring is full: what it holds becomes a segment before it is overwritten."""
        self._segment()
        self._facts()

    def moment(self) -> None:
        """A step, a backward or an outermost call has ended: new facts are written."""
        steps = self._tracer.bad.sinks.steps
        mark = (steps.attempts + 1 if steps.met else 0, steps.micro)
        if mark != self._marks[-1][1:]:
            self._marks.append((self._tracer.ordinal, *mark))
        news = (len(self._tracer.labels.births), self._pending.places())
        if news != self._told and self._facts():
            self._told = news

    def finish(self, trace: Trace) -> Trace:
        """The capture has ended with this trace, which gets a note where it could not be written."""
        self._segment()
        self._ranges(trace.ranges)
        self.writer.facts(trace, self._sources_of(trace.births))
        if self.writer.note is not None:
            notes = (*trace.coverage.notes, self.writer.note)
            trace.coverage = trace.coverage.model_copy(update={"notes": notes})
        return trace

    # -- facts ---------------------------------------------------------------------------------------------------

    def _facts(self) -> bool:
        """Write the facts as they would be if the run ended now; not now where that has taken too long already."""
        start = self._clock()
        if self._spent > FREE + SHARE * (start - self._begun):
            return False
        trace = self._capture.so_far(self._pending.sinks())
        done = self.writer.facts(trace, self._sources_of(trace.births))
        self._spent += self._clock() - start
        return done

    def _sources_of(self, births: Iterable[Birth]) -> dict[str, str]:
        """The SHA-256 of the files that births stand in, as they were when they were first met."""
        for birth in births:
            for site in (birth.event.site, birth.event.library_site):
                if site is not None and site.file not in self._sources:
                    self._sources[site.file] = sha256_of(site.file) or ""
        return {file: digest for file, digest in self._sources.items() if digest}

    # -- events --------------------------------------------------------------------------------------------------

    def _segment(self) -> None:
        tracer = self._tracer
        # what an earlier turn of the ring has held is gone
        start, stop = max(self._next, (tracer.ordinal - 1) & ~MASK), tracer.ordinal
        self._next = stop
        if stop > start and self.writer.note is None:
            events = self._events(start, stop)
            if self._tables():
                self.writer.segment(events)
            self._ranges(tracer.ranges.records(self._site, self._lines[layout.RANGES]))

    def _events(self, start: int, stop: int) -> NDArray[np.void]:
        """The rows of one turn of the ring, from ordinal to ordinal."""
        rows = self._tracer.rows
        turn = slice(start & MASK, ((stop - 1) & MASK) + 1)
        ordinals = np.array(rows.ordinals[turn], np.int64)
        there = (ordinals >= start) & (ordinals < stop)
        made = np.zeros(len(ordinals), layout.event_dtype())
        made["ordinal"] = ordinals - self._tracer.first
        made["operator"] = list(map(self._operators.__getitem__, rows.operators[turn]))
        made["node"] = list(map(self._nodes.__getitem__, rows.nodes[turn]))
        made["site"], made["module"] = rows.sites[turn], rows.modules[turn]
        made["phase"] = rows.phases[turn]
        self._steps(made, ordinals)
        return made if there.all() else made[there]

    def _steps(self, made: NDArray[np.void], ordinals: NDArray[np.int64]) -> None:
        marks = np.array(self._marks, np.int64)
        last = np.searchsorted(marks[:, 0], ordinals, side="right") - 1
        step, micro = marks[last, 1], marks[last, 2]
        made["step"] = step
        made["micro"] = np.where(made["phase"] == OPTIMIZER, np.maximum(micro, 1), micro + 1)
        del self._marks[:-1]

    # -- tables --------------------------------------------------------------------------------------------------

    def _tables(self) -> bool:
        """Write the lines of the tables that are new; whether all of them are there."""
        names = self._tracer.names
        writer = self.writer
        operators = [text_line(writer.name(layout.OPERATORS, getattr(o, "name", None))) for o in self._operators.new()]
        nodes = [text_line(writer.name(layout.NODES, getattr(n, "__name__", None))) for n in self._nodes.new()]
        first = self._lines[layout.MODULES]
        modules = [text_line(writer.name(layout.MODULES, path)) for path in names.paths()[first:]]
        sites = [self._site_line(number) for number in range(self._lines[layout.SITES], len(self._tracer.sites))]
        self._lines[layout.MODULES] += len(modules)
        self._lines[layout.SITES] += len(sites)
        wanted = {layout.OPERATORS: operators, layout.NODES: nodes, layout.MODULES: modules, layout.SITES: sites}
        return all([writer.append(table, lines) for table, lines in wanted.items()])

    def _ranges(self, new: Iterable[Any]) -> None:
        lines = [written(self.writer.private(found)) for found in new]
        if self.writer.append(layout.RANGES, lines):
            self._lines[layout.RANGES] += len(lines)

    def _site(self, number: int) -> Any:
        return self._tracer.sites.resolve(number, None)[0]

    def _site_line(self, number: int) -> str:
        site, library = self._tracer.sites.resolve(number, None)
        if site is None:
            return "null"
        private = self.writer.private
        inner = None if library is None else private(library)
        return written(SiteLine(site=private(site), library_site=inner))


class _Numbers(dict[Any, int]):
    """Numbers of objects, given in the order in which they are met."""

    def __init__(self, known: Iterable[Any] = ()) -> None:
        super().__init__()
        self._written = 0
        for value in known:
            self[value] = len(self)

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number

    def new(self) -> list[Any]:
        """Those that were not given here before."""
        found = list(self)[self._written :]
        self._written = len(self)
        return found
