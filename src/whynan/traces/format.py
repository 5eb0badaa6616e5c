"""The format ``whynan.trace/1``: files, limits, and the JSON documents in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError

from whynan.records import (
    BirthKind,
    ChainLink,
    Coverage,
    Damage,
    Data,
    Element,
    ForwardOperand,
    Neighbourhood,
    Note,
    Phase,
    Reach,
    Run,
    ScaleFall,
    SinkKind,
    Site,
    Source,
)
from whynan.traces.facts import Birth, Event, LabelKind, Silent, Sink, Trace
from whynan.traces.json import spelled, spelled_out, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np


# -- The format ``whynan.trace/1``: what lies in a trace's folder, how large it may be, and the layout of an event -----


SCHEMA: Final = "whynan.trace/1"
RUN: Final = "run.json"
FACTS: Final = "facts.json"
REPORT: Final = "report.json"
REPLAY: Final = "replay-{}"
"""The folder of a replay, by its number from 1: a trace of its own in that of a run."""
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


NO_FACTS: Final = Note.of("no_facts")
"""The note of a report that was made of what a run has left."""
FAILED: Final = Note.of("whynan_failed")
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


Natural = Annotated[int, Field(ge=0, lt=1 << 63)]
Label = Annotated[int, Field(ge=1, lt=1 << 31)]
Labels = Annotated[tuple[Label, ...], Field(max_length=1 << 16)]
Scalar = bool | int | float | str | None


class Part(BaseModel):
    """Frozen base of every part; infinities and NaN are written as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", populate_by_name=True)


class EventPart(Part):
    """An event as the facts tell of it."""

    ordinal: Natural
    op: str | None
    phase: Phase
    site: Site | None
    library_site: Site | None
    grad_fn: str | None
    forward_op: str | None
    step: Natural | None
    micro: Natural | None
    recomputed: bool
    node: str | None = None
    value: str | None = None
    made_of: str | None = None

    @classmethod
    def of(cls, event: Event) -> Self:
        """The part that tells of an event."""
        return cls.model_construct(**{name: getattr(event, name) for name in cls.model_fields})

    def event(self) -> Event:
        """The event."""
        return Event(**{name: getattr(self, name) for name in type(self).model_fields})


class BirthPart(Part):
    """A birth or literal."""

    label: Label
    label_kind: LabelKind
    event: EventPart
    kind: BirthKind
    element: Element
    forward_operands: tuple[ForwardOperand, ...]
    causes: Labels
    cause_links: tuple[ChainLink, ...]
    steps: tuple[ChainLink, ...]
    steps_omitted: Natural
    occurrences: Natural
    modules: tuple[str, ...]
    scope: tuple[Natural, ...]
    note: Note | None
    named: bool
    computed: bool
    data: Data | None
    around: Neighbourhood | None = None

    @classmethod
    def of(cls, birth: Birth) -> Self:
        """The part that tells of a birth."""
        told: dict[str, Any] = {name: getattr(birth, name) for name in cls.model_fields}
        told |= {"event": EventPart.of(birth.event), "causes": tuple(sorted(birth.causes))}
        told |= {"steps": tuple(birth.steps), "modules": tuple(birth.modules)}
        return cls.model_construct(**told)

    def birth(self) -> Birth:
        """The birth."""
        told: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        told |= {"event": self.event.event(), "causes": frozenset(self.causes)}
        told |= {"steps": list(self.steps), "modules": dict.fromkeys(self.modules)}
        return Birth(**told)


class SilentPart(Part):
    """Damage without a birth."""

    event: EventPart
    element: Element
    damage: Damage
    modules: tuple[str, ...]
    occurrences: Natural
    scope: tuple[Natural, ...]
    around: Neighbourhood | None
    reaches: tuple[Reach, ...]

    @classmethod
    def of(cls, silent: Silent) -> Self:
        """The part that tells of silent damage."""
        told: dict[str, Any] = {name: getattr(silent, name) for name in cls.model_fields}
        told |= {"event": EventPart.of(silent.event), "modules": tuple(silent.modules)}
        return cls.model_construct(**told)

    def silent(self) -> Silent:
        """The damage."""
        told: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        told |= {"event": self.event.event(), "modules": dict.fromkeys(self.modules)}
        return Silent(**told)


class CarriedPart(Part):
    """How many elements of a sink carry a set of labels."""

    labels: Labels
    elements: Natural


class SinkPart(Part):
    """A value that left."""

    kind: SinkKind
    name: str | None
    bad: Natural
    total: Natural
    labels: Labels
    fatal: bool
    damage: bool
    counts: tuple[CarriedPart, ...]
    owner: Natural | None
    scale_fall: ScaleFall | None = None
    value: float | None = None
    decision: ChainLink | None = None

    @classmethod
    def of(cls, sink: Sink) -> Self:
        """The part that tells of a sink."""
        told: dict[str, Any] = {name: getattr(sink, name) for name in cls.model_fields}
        told["labels"] = tuple(sorted(sink.labels))
        told["counts"] = tuple(
            CarriedPart.model_construct(labels=tuple(sorted(carried)), elements=count)
            for carried, count in sink.counts.items()
        )
        return cls.model_construct(**told)

    def sink(self) -> Sink:
        """The sink."""
        told: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        told["labels"] = frozenset(self.labels)
        told["counts"] = {frozenset(carried.labels): carried.elements for carried in self.counts}
        return Sink(**told)


class Meant(Part):
    """An allowance of the run: what is meant, and why."""

    pattern: str
    reason: str


class FactsDocument(Part):
    """All facts of a run, without its ranges: of those, the lines of ``ranges.jsonl`` that belong to it."""

    schema_: Literal["whynan.trace/1"] = Field(default="whynan.trace/1", alias="schema")
    births: tuple[BirthPart, ...]
    sinks: tuple[SinkPart, ...]
    unexplained: tuple[SinkPart, ...]
    silent: tuple[SilentPart, ...] = ()
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
            births=tuple(BirthPart.of(birth) for birth in trace.births),
            sinks=tuple(SinkPart.of(sink) for sink in trace.sinks),
            unexplained=tuple(SinkPart.of(sink) for sink in trace.unexplained),
            silent=tuple(SilentPart.of(silent) for silent in trace.silent),
            coverage=trace.coverage,
            ranges=ranges,
            fatal_seen=trace.fatal_seen,
            failed=trace.failed,
            allowances=tuple(allowances),
            sources=tuple(Source(file=file, sha256=digest) for file, digest in sources.items()),
        )

    def trace(self) -> Trace:
        """The trace, without its ranges."""
        return Trace(
            births=[part.birth() for part in self.births],
            sinks=[part.sink() for part in self.sinks],
            coverage=self.coverage,
            fatal_seen=self.fatal_seen,
            unexplained=[part.sink() for part in self.unexplained],
            failed=self.failed,
            silent=[part.silent() for part in self.silent],
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
    """What the session knew beside the facts: notes, what it took for meant, and allowances that excused nothing."""

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


def written(part: BaseModel) -> str:
    """The JSON text of a part, without the sentences of its notes.

    A lone surrogate in a name (a file name that is not UTF-8) is written as its escape.
    """
    try:
        return visible(part.model_dump_json(by_alias=True, round_trip=True))
    except PydanticSerializationError:
        plain = type(part).model_validate(spelled_out(part.model_dump(by_alias=True, round_trip=True)))
        return visible(plain.model_dump_json(by_alias=True, round_trip=True))


def text_line(text: str | None) -> str:
    """The line of a table that holds text."""
    return visible(json.dumps(None if text is None else spelled(text), ensure_ascii=False))
