"""What a capture hands to analysis: facts about events, births and sinks, without a framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetPydanticSchema, with_config
from pydantic_core import PydanticCustomError, core_schema

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
    Range,
    Reach,
    ScaleFall,
    SinkKind,
    Site,
)
from whynan.records.base import Record

LabelKind = Literal["birth", "literal"]


# -- How a fact lies on disk: what pydantic has to know of its fields beside their types -------------------------------


_ON_DISK: Final = ConfigDict(extra="forbid", ser_json_inf_nan="strings", revalidate_instances="always")
_Kind = TypeVar("_Kind")


class _Dictionary:
    """A dataclass read strictly from a dictionary, whose values pydantic validates as it does those of an instance."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def made(held: Any) -> Any:
            if not isinstance(held, dict):
                return held
            try:
                return kind(**held)
            except TypeError:
                wrong = PydanticCustomError("fields", "Input should have the fields of {kind}", {"kind": kind.__name__})
                raise wrong from None

        return core_schema.no_info_before_validator_function(made, handler(kind))


Stored = Annotated[_Kind, _Dictionary()]


def _stored(kind: Any, read: Callable[[Any], Any], write: Callable[[Any], Any]) -> GetPydanticSchema:
    """A field that lies on disk as a value of another kind."""
    writer = core_schema.plain_serializer_function_ser_schema(write)
    return GetPydanticSchema(
        lambda _, handler: core_schema.no_info_after_validator_function(
            read, handler.generate_schema(kind), serialization=writer
        )
    )


def _counts(carried: tuple[Carried, ...]) -> dict[frozenset[int], int]:
    return {frozenset(one.labels): one.elements for one in carried}


def _carried(counts: dict[frozenset[int], int]) -> tuple[dict[str, Any], ...]:
    return tuple({"labels": tuple(sorted(labels)), "elements": count} for labels, count in counts.items())


Natural = Annotated[int, Field(ge=0, lt=1 << 63)]
Label = Annotated[int, Field(ge=1, lt=1 << 31)]
_LABELS = Annotated[tuple[Label, ...], Field(max_length=1 << 16)]
Labels = Annotated[frozenset[int], _stored(_LABELS, frozenset, lambda labels: tuple(sorted(labels)))]
Names = Annotated[dict[str, None], _stored(tuple[str, ...], dict.fromkeys, tuple)]
Links = Annotated[list[ChainLink], _stored(tuple[ChainLink, ...], list, tuple)]


class Carried(Record):
    """How many elements of a sink carry a set of labels."""

    labels: _LABELS
    elements: Natural


Counts = Annotated[dict[frozenset[int], int], _stored(tuple[Carried, ...], _counts, _carried)]


# -- The facts ---------------------------------------------------------------------------------------------------------


STILL_HELD = "a tensor still held"
"""The name of the sink of a value that the program holds at the end and that no traced event read."""


@with_config(_ON_DISK)
@dataclass(frozen=True, slots=True)
class Event:
    """One executed operation: its ordinal among the dispatcher calls of the trace, from 0, and where it stands."""

    ordinal: Natural
    op: str | None
    phase: Phase
    site: Site | None
    library_site: Site | None = None
    grad_fn: str | None = None
    forward_op: str | None = None
    step: Natural | None = None
    micro: Natural | None = None
    recomputed: bool = False
    node: str | None = None
    """The name of the node of an ONNX model, and of the value that it wrote."""
    value: str | None = None
    made_of: str | None = None
    """What the engine made a node of that does not stand in the file as it is, in a sentence."""


@with_config(_ON_DISK)
@dataclass(slots=True)
class Birth:
    """A root or a literal: the event, the first element, what made it, and how often it happened again.

    ``causes`` are labels of bad values that the birth was made from and that are no explanation by themselves:
    a literal, or a forward value kept in a saved tensor. ``scope`` numbers the allowances in force at the event.
    A literal is ``named`` after the first event that reduced, selected or computed from it, and ``computed`` where that
    gave a NaN that is no copy. ``around`` are the operations around the event; None of what no operation bore.
    """

    label: Label
    label_kind: LabelKind
    event: Stored[Event]
    kind: BirthKind
    element: Element
    forward_operands: tuple[ForwardOperand, ...] = ()
    causes: Labels = frozenset()
    cause_links: tuple[ChainLink, ...] = ()
    steps: Links = field(default_factory=lambda: [])
    steps_omitted: Natural = 0
    occurrences: Natural = 1
    modules: Names = field(default_factory=lambda: {})
    scope: tuple[Natural, ...] = ()
    note: Note | None = None
    named: bool = False
    computed: bool = False
    data: Data | None = None
    around: Neighbourhood | None = None


@with_config(_ON_DISK)
@dataclass(frozen=True, slots=True)
class Sink:
    """A value that left: fatal or observed, how many of its elements were bad, and the labels that they carry.

    ``counts`` tells of each set of labels how many elements carry it; ``owner`` numbers the optimizer that consumed it.
    ``scale_fall``: what a loss scaler has tried before it; of gradients that it skips in vain. ``value`` is what all
    bad elements are, None where they differ or it is not known. ``decision``: what the program does for it.
    """

    kind: SinkKind
    name: str | None
    bad: Natural
    total: Natural
    labels: Labels
    fatal: bool
    damage: bool = False
    counts: Counts = field(default_factory=lambda: {}, compare=False)
    owner: Natural | None = None
    scale_fall: ScaleFall | None = field(default=None, compare=False)
    value: float | None = field(default=None, compare=False)
    decision: ChainLink | None = field(default=None, compare=False)

    def with_labels(self, labels: frozenset[int]) -> Sink:
        """The sink as some labels see it: with the count of the elements that carry one of them."""
        own = sum(count for carried, count in self.counts.items() if carried & labels)
        return replace(self, bad=own) if own else self


@with_config(_ON_DISK)
@dataclass(slots=True)
class Silent:
    """Damage without a birth: the event that did it, the first element concerned, and what is to be known of it.

    ``scope`` numbers the allowances in force at the event; ``reaches`` are the sinks that the wrong numbers reached, as
    far as that was seen.
    """

    event: Stored[Event]
    element: Element
    damage: Damage
    modules: Names = field(default_factory=lambda: {})
    occurrences: Natural = 1
    scope: tuple[Natural, ...] = ()
    around: Neighbourhood | None = None
    reaches: tuple[Reach, ...] = ()


@dataclass(slots=True)
class Trace:
    """All that one traced run left for analysis.

    `fatal_seen`: it had a fatal sink at all, good or bad; `failed`: an error of our own cut it short.
    """

    births: list[Birth]
    sinks: list[Sink]
    coverage: Coverage
    ranges: tuple[Range, ...] = ()
    fatal_seen: bool = False
    unexplained: list[Sink] = field(default_factory=lambda: [])
    failed: bool = False
    silent: list[Silent] = field(default_factory=lambda: [])
