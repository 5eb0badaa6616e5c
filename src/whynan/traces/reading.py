"""A trace as it is read: nothing in its folder is believed before it was looked at."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whynan.errors import UsageError
from whynan.records import Coverage, Note, Range
from whynan.traces import format as layout
from whynan.traces.documents import FactsDocument, Meant, RunDocument
from whynan.traces.events import Events
from whynan.traces.facts import Trace
from whynan.traces.format import NO_FACTS
from whynan.traces.opening import Folder

if TYPE_CHECKING:
    import os

    from whynan.records import Run
    from whynan.traces.documents import SessionPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A trace that was read: what was found, of what run, what was meant, and every event."""

    run: Run
    session: SessionPart
    options: dict[str, bool | int | float | str | None]
    started: str
    ended: str | None
    """None where the run did not end its trace."""
    trace: Trace
    allowances: tuple[Meant, ...]
    sources: dict[str, str]
    """SHA-256 of source files at the time of the run."""
    events: Events


def read_trace(directory: str | os.PathLike[str]) -> Recorded:
    """Read the folder of a trace; raises ``UsageError`` that names the first thing that is wrong with it."""
    folder = Folder(directory)
    known = folder.document(layout.RUN, RunDocument)
    if known is None:
        what = f"the folder {folder.shown} is no whynan trace (it has no {layout.RUN})"
        raise UsageError(what, f"give one that whynan wrote, of schema {layout.SCHEMA}")
    finished = known.ended is not None
    facts = folder.document(layout.FACTS, FactsDocument)
    events = Events(folder, whole=finished)
    if facts is not None:
        _check(folder, facts)
    trace = Trace([], [], Coverage(typed_notes=(NO_FACTS,)), failed=True) if facts is None else facts.trace()
    trace.ranges = _ranges(folder, 0 if facts is None else facts.ranges)
    if not finished:
        trace.coverage = _so_far(trace.coverage, len(events))
    return Recorded(
        run=known.run,
        session=known.session,
        options=known.options,
        started=known.started,
        ended=known.ended,
        trace=trace,
        allowances=() if facts is None else facts.allowances,
        sources={} if facts is None else {source.file: source.sha256 for source in facts.sources},
        events=events,
    )


def _so_far(coverage: Coverage, events: int) -> Coverage:
    """What was looked at by a run that did not end its trace: its segments may go on where its facts end."""
    seen = max(coverage.events, events)
    noted = coverage.with_notes(Note.of("unfinished", events=seen))
    return noted.model_copy(update={"events": seen, "eager": max(coverage.eager, events)})


def _ranges(folder: Folder, count: int) -> tuple[Range, ...]:
    if not count:
        return ()
    lines = folder.lines(layout.RANGES, whole=False)
    if len(lines) < count:
        raise folder.refused(layout.RANGES, f"it has {len(lines):,} lines of {count:,}")
    held = (folder.parsed(layout.RANGES, line) for line in lines[:count])
    return tuple(folder.validated(layout.RANGES, line, Range) for line in held)


def _check(folder: Folder, facts: FactsDocument) -> None:
    """Whether everything that the facts name is there."""
    labels = {birth.label for birth in facts.births}
    if len(labels) < len(facts.births):
        raise folder.refused(layout.FACTS, "two births have one label")
    named = {label for birth in facts.births for label in birth.causes}
    for sink in (*facts.sinks, *facts.unexplained):
        named.update(sink.labels, *(carried.labels for carried in sink.counts))
    if missing := named - labels:
        raise folder.refused(layout.FACTS, f"it names birth {min(missing)}, which there is not")
    scopes = {number for one in (*facts.births, *facts.silent) for number in one.scope}
    if max(scopes, default=-1) >= len(facts.allowances):
        raise folder.refused(layout.FACTS, f"it names allowance {max(scopes)}, which there is not")
