"""What a capture hands to analysis: facts about events, births and sinks, without a framework."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

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

LabelKind = Literal["birth", "literal"]

STILL_HELD = "a tensor still held"
"""The name of the sink of a value that the program holds at the end and that no traced event read."""


@dataclass(frozen=True, slots=True)
class Event:
    """One executed operation: its ordinal among the dispatcher calls of the trace, from 0, and where it stands."""

    ordinal: int
    op: str | None
    phase: Phase
    site: Site | None
    library_site: Site | None = None
    grad_fn: str | None = None
    forward_op: str | None = None
    step: int | None = None
    micro: int | None = None
    recomputed: bool = False
    node: str | None = None
    """The name of the node of an ONNX model, and of the value that it wrote."""
    value: str | None = None
    made_of: str | None = None
    """What the engine made a node of that does not stand in the file as it is, in a sentence."""


@dataclass(slots=True)
class Birth:
    """A root or a literal: the event, the first element, what made it, and how often it happened again.

    ``causes`` are labels of bad values that the birth was made from and that are no explanation by themselves:
    a literal, or a forward value kept in a saved tensor. ``scope`` numbers the allowances in force at the event.
    A literal is ``named`` after the first event that reduced, selected or computed from it, and ``computed`` where that
    gave a NaN that is no copy. ``around`` are the operations around the event; None of what no operation bore.
    """

    label: int
    label_kind: LabelKind
    event: Event
    kind: BirthKind
    element: Element
    forward_operands: tuple[ForwardOperand, ...] = ()
    causes: frozenset[int] = frozenset()
    cause_links: tuple[ChainLink, ...] = ()
    steps: list[ChainLink] = field(default_factory=lambda: [])
    steps_omitted: int = 0
    occurrences: int = 1
    modules: dict[str, None] = field(default_factory=lambda: {})
    scope: tuple[int, ...] = ()
    note: Note | None = None
    named: bool = False
    computed: bool = False
    data: Data | None = None
    around: Neighbourhood | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """A value that left: fatal or observed, how many of its elements were bad, and the labels that they carry.

    ``counts`` tells of each set of labels how many elements carry it; ``owner`` numbers the optimizer that consumed it.
    ``scale_fall``: what a loss scaler has tried before it; of gradients that it skips in vain. ``value`` is what all
    bad elements are, None where they differ or it is not known. ``decision``: what the program does for it.
    """

    kind: SinkKind
    name: str | None
    bad: int
    total: int
    labels: frozenset[int]
    fatal: bool
    damage: bool = False
    counts: dict[frozenset[int], int] = field(default_factory=lambda: {}, compare=False)
    owner: int | None = None
    scale_fall: ScaleFall | None = field(default=None, compare=False)
    value: float | None = field(default=None, compare=False)
    decision: ChainLink | None = field(default=None, compare=False)

    def of(self, labels: frozenset[int]) -> Sink:
        """The sink as some labels see it: with the count of the elements that carry one of them."""
        own = sum(count for carried, count in self.counts.items() if carried & labels)
        return replace(self, bad=own) if own else self


@dataclass(slots=True)
class Silent:
    """Damage without a birth: the event that did it, the first element concerned, and what is to be known of it.

    ``scope`` numbers the allowances in force at the event; ``reaches`` are the sinks that the wrong numbers reached, as
    far as that was seen.
    """

    event: Event
    element: Element
    damage: Damage
    modules: dict[str, None] = field(default_factory=lambda: {})
    occurrences: int = 1
    scope: tuple[int, ...] = ()
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
