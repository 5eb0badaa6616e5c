"""The format ``whynan.trace/1``: files, limits, and the JSON documents in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from whynan.records import Coverage, Note, Run, Site, Source
from whynan.traces.facts import Birth, Natural, Silent, Sink, Stored, Trace
from whynan.traces.json import dump_json, escape_surrogates, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np


# -- The format ``whynan.trace/1``: what lies in a trace's folder, how large it may be, and the layout of an event -----


SCHEMA: Final = "whynan.trace/1"
RUN: Final = "run.json"
FACTS: Final = "facts.json"
REPLAY: Final = "replay-{}"
"""The folder of a replay, by its number from 1: a trace of its own in that of a run."""
REPORT: Final = "report.json"
"""The report of a redacted run: with the values gone, no rule could recognise a birth again."""
EVENTS: Final = "events"
RANGES: Final = "ranges.jsonl"
OPERATORS: Final = "operators.jsonl"
NODES: Final = "nodes.jsonl"
MODULES: Final = "modules.jsonl"
SITES: Final = "sites.jsonl"
TABLES: Final = (OPERATORS, NODES, MODULES, SITES)
"""A line each; an event names a line by its number, from 0. Line 0 of all but the operators is ``null``: none."""

TEMPORARY: Final = ".tmp"
"""The end of the name of a file that is not whole yet."""

SEGMENT: Final = 1 << 16
"""Events in one segment at most."""
MOST_DOCUMENT_BYTES: Final = 64 << 20
"""Of ``run.json`` and ``facts.json``."""
MOST_TABLE_BYTES: Final = 256 << 20
MOST_LINE_BYTES: Final = 1 << 20
MOST_LINES: Final = 1 << 22

PHASES: Final = ("forward", "backward", "accumulation", "optimizer")
"""The phases of events by number."""


NO_FACTS: Final = Note.create("no_facts")
"""The note of a report that was made of what a run has left."""
FAILED: Final = Note.create("whynan_failed")
"""The note of a run of which whynan has not seen all, by a fault of its own."""


def segment_name(number: int) -> str:
    """The file of a segment: ``00000000.npy``."""
    return f"{number:08d}.npy"


def event_dtype() -> np.dtype[np.void]:
    """One event: little-endian, packed, 33 bytes.

    ``ordinal`` from 0, rising; ``operator``, ``site``, ``module`` and ``node`` are lines of the tables; ``phase`` a
    number of ``PHASES``; ``step`` 1 + the attempts of the optimizer that has made most, 0 while none has stepped;
    ``micro`` which backward since that, from 1.
    """
    import numpy as np

    fields = [("ordinal", "<i8"), *((name, "<u4") for name in _NUMBERS), ("phase", "|u1")]
    return np.dtype(fields)


_NUMBERS: Final = ("operator", "site", "module", "node", "step", "micro")


# -- The JSON parts of a trace: of what run it is (``run.json``), and what was found (``facts.json``) ------------------


Scalar = bool | int | float | str | None


class Part(BaseModel):
    """Frozen base of every part; infinities and NaN are written as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", populate_by_name=True)


class Meant(Part):
    """An allowance of the run: what is meant, and why."""

    pattern: str
    reason: str


class FactsDocument(Part):
    """All facts of a run, without its ranges: of those, the lines of ``ranges.jsonl`` that belong to it."""

    schema_: Literal["whynan.trace/1"] = Field(default="whynan.trace/1", alias="schema")
    births: tuple[Stored[Birth], ...]
    sinks: tuple[Stored[Sink], ...]
    unexplained: tuple[Stored[Sink], ...]
    silent: tuple[Stored[Silent], ...] = ()
    coverage: Coverage
    ranges: Natural
    fatal_seen: bool
    failed: bool
    allowances: tuple[Meant, ...]
    sources: tuple[Source, ...]

    @classmethod
    def of(cls, trace: Trace, allowances: Iterable[Meant], sources: Mapping[str, str], ranges: int) -> Self:
        """The document of a trace, of which so many ranges are written."""
        return cls.model_construct(
            births=tuple(trace.births),
            sinks=tuple(trace.sinks),
            unexplained=tuple(trace.unexplained),
            silent=tuple(trace.silent),
            coverage=trace.coverage,
            fatal_seen=trace.fatal_seen,
            failed=trace.failed,
            ranges=ranges,
            allowances=tuple(allowances),
            sources=tuple(Source(file=file, sha256=digest) for file, digest in sources.items()),
        )

    def trace(self) -> Trace:
        """The trace, without its ranges."""
        return Trace(
            births=list(self.births),
            sinks=list(self.sinks),
            coverage=self.coverage,
            fatal_seen=self.fatal_seen,
            unexplained=list(self.unexplained),
            failed=self.failed,
            silent=list(self.silent),
        )


class CommentPart(Part):
    """A comment of the program's that says what is meant, and the lines that it speaks of."""

    file: str
    line: Natural
    last: Natural
    patterns: tuple[str, ...]
    reason: str


class KnownPart(Part):
    """A finding of an earlier report; ``place`` is file, function and expression."""

    rule: str
    phase: str
    op: str | None
    place: tuple[str, str | None, str | None] | None


class SessionPart(Part):
    """What the run knew beside the facts: notes, what it took for meant, and allowances that excused nothing."""

    typed_notes: tuple[Note, ...] = ()
    comments: tuple[CommentPart, ...] = ()
    baseline: str | None = None
    """The path of the earlier report."""
    known: tuple[KnownPart, ...] = ()
    unused_allows: tuple[str, ...] = ()


class RunDocument(Part):
    """Of what run a trace is; ``ended`` is null until the run has ended. Times are UTC, ``2026-01-31T12:00:00Z``."""

    schema_: Literal["whynan.trace/1"] = Field(default="whynan.trace/1", alias="schema")
    pid: Natural
    started: str
    ended: str | None = None
    options: dict[str, Scalar] = Field(default_factory=dict)
    session: SessionPart = SessionPart()
    run: Run


class SiteLine(Part):
    """A line of ``sites.jsonl``: the user's place, and the library's where the event stands in one."""

    site: Site | None
    library_site: Site | None


def json_of(part: BaseModel) -> str:
    """The JSON text of a part, without the sentences of its notes."""
    return dump_json(part, round_trip=True)


def text_line(text: str | None) -> str:
    """The line of a table that holds text."""
    return visible(json.dumps(None if text is None else escape_surrogates(text), ensure_ascii=False))
