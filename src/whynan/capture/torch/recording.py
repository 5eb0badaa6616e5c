"""A trace on disk while it is made: events when the ring is full, facts when there is something new to tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.torch.pending import Pending
from whynan.capture.torch.segments import Segments
from whynan.source.fingerprint import sha256_of
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whynan.capture.torch.context import TraceContext
    from whynan.traces import Birth, Sink, Trace
    from whynan.traces.writing import TraceWriter

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

    def moment(self) -> None:
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
