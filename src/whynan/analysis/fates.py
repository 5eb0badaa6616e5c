"""Escaped, damaging or absorbed: which births reached a sink, and whether a sink was fatal."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.records import Fate
    from whynan.traces import Birth, Sink, Trace


@dataclass(slots=True, eq=False)
class Root:
    """A birth with the sinks that it reached, directly or through births made from it."""

    birth: Birth
    fatal: list[Sink] = field(default_factory=lambda: [])
    observed: list[Sink] = field(default_factory=lambda: [])
    damaged: list[Sink] = field(default_factory=lambda: [])
    folded: frozenset[int] = frozenset()
    """Labels of the births that are steps of this one's chain."""
    also: list[Birth] = field(default_factory=lambda: [])
    """Births that this one has led to in the backward, as the first of their kind there."""
    teller: Root | None = None
    """The root that has taken its sinks over and tells of it."""

    @property
    def fate(self) -> Fate:
        """What became of it."""
        if self.fatal or self.observed:
            return "escaped"
        return "damaging" if self.damaged else "absorbed"

    def absorb(self, other: Root) -> None:
        """Tell of another root as a step of this one."""
        self.fatal = _merge_sinks(self.fatal, other.fatal)
        self.observed = _merge_sinks(self.observed, other.observed)
        self.damaged = _merge_sinks(self.damaged, other.damaged)
        self.folded |= {other.birth.label, *other.folded}
        if other.birth.event.phase == "backward":
            self.also += [other.birth, *other.also]
        other.teller = other.teller or self

    @property
    def outermost(self) -> Root:
        """The root that tells of this one: itself, where no other does."""
        root = self
        while root.teller is not None:
            root = root.teller
        return root

    def count_sink_elements(self) -> None:
        """Have every sink count the elements that carry this root or one folded into it, each once."""
        labels = self.folded | {self.birth.label}
        for sinks in (self.fatal, self.observed, self.damaged):
            sinks[:] = [sink.with_labels(labels) for sink in sinks]


def _merge_sinks(first: list[Sink], second: list[Sink]) -> list[Sink]:
    """The sinks of two roots in the order of time, without those that both have reached."""
    known = {id(sink) for sink in first}
    return [*first, *(sink for sink in second if id(sink) not in known)]


def roots(trace: Trace) -> list[Root]:
    """Every birth and literal with its sinks; what is a step of another, or has come in as its cause, is no root."""
    by_label = {b.label: Root(b) for b in trace.births}
    for sink in trace.sinks:
        for label in sink.labels:
            root = by_label.get(label)
            if root is None:
                continue
            if sink.damage:
                root.damaged.append(sink)
            elif sink.fatal:
                root.fatal.append(sink)
            else:
                root.observed.append(sink)
    _fold_backward_births(by_label)
    found = [root for root in by_label.values() if root.teller is None]
    for root in found:
        root.count_sink_elements()
    return found


def _fold_backward_births(by_label: dict[int, Root]) -> None:
    """Have one root tell of the births in the backward that are one birth coming back, or that go with it.

    Autograd saves what a derivative is computed from: what an operation bore is the root of what is made of it there,
    though a mask kept it out of the loss. What came in from outside is the root where it escaped by itself, and the
    cause of the first birth in the backward where it did not.
    """
    forward: dict[object, Root] = {}
    first: dict[object, Root] = {}
    for label in sorted(by_label):
        root = by_label[label]
        if root.birth.event.phase != "backward":
            forward[_expression_key(root.birth, root.birth.event.op)] = root
            continue
        causes = [by_label[c] for c in sorted(root.birth.causes) if c in by_label]
        made_from = [c for c in causes if c.birth.label_kind == "birth"]
        origins = [c for c in made_from if c.fatal or (_is_backward_of(root, c) and _shares_allowances(root, c))]
        beside = forward.get(_expression_key(root.birth, root.birth.event.forward_op))
        if origins:
            for top in dict.fromkeys(origin.outermost for origin in origins):
                top.absorb(root)
        elif made_from:
            _fold_into_first(root, made_from, first)
        elif (same := _birth_of_same_literals(root, by_label)) is not None:
            same.outermost.absorb(root)
        elif beside is not None and _shares_allowances(root, beside):
            top = beside.outermost
            harmed = root if top.fate == "absorbed" and root.fate != "absorbed" else top
            harmed.absorb(root if harmed is top else top)


def _birth_of_same_literals(root: Root, by_label: dict[int, Root]) -> Root | None:
    """The birth of the forward, harmful itself, that is made from the very literals that one in the backward is."""
    written = _literal_labels(root.birth, by_label)
    if root.birth.label_kind == "literal" or not written:
        return None
    for other in by_label.values():
        born = other.birth
        if (
            born.label_kind == "birth"
            and born.event.phase == "forward"
            and other.fatal
            and _shares_allowances(root, other)
        ):
            mine = _literal_labels(born, by_label)
            if mine and mine >= written and born.label < root.birth.label:
                return other
    return None


def _literal_labels(birth: Birth, by_label: dict[int, Root], known: frozenset[int] = frozenset()) -> frozenset[int]:
    """The literals, as they were first read, that alone a birth is made from; none where something else is.

    `known`: labels that lead here; what was read from a file may name a cause in a circle.
    """
    found: set[int] = set()
    for label in birth.causes - known:
        cause = by_label[label].birth if label in by_label else None
        if cause is None or cause.label_kind != "literal":
            return frozenset()
        found |= _literal_labels(cause, by_label, known | {label}) or {label}
    return frozenset(found)


def _fold_into_first(root: Root, causes: list[Root], first: dict[object, Root]) -> None:
    """Births in the backward that are made from the same causes are one; the causes did no harm but by it."""
    known = first.setdefault((root.birth.scope, *(id(c) for c in causes)), root)
    if known is not root:
        known.absorb(root)
    for cause in causes if known.fate != "absorbed" else ():
        if cause.outermost is not known.outermost and _shares_allowances(root, cause):
            known.absorb(cause)


def _is_backward_of(root: Root, cause: Root) -> bool:
    """Whether an operation bore the cause of a birth in the backward, on the way to what that differentiates.

    A derivative that is differentiated again has the place of its operation, which has read no bad number.
    """
    event, born = root.birth.event, cause.birth.event
    known = [o.value for o in root.birth.forward_operands if isinstance(o.value, float)]
    healthy = bool(known) and all(math.isfinite(v) for v in known) and event.forward_op != born.op
    same = (event.site, event.library_site) == (born.site, born.library_site) and born.phase == "forward"
    return cause.birth.kind != "entered" and not (same and healthy)


def _shares_allowances(root: Root, other: Root) -> bool:
    """Whether no allowance would be in force for the other one alone."""
    return set(other.birth.scope) <= set(root.birth.scope)


def _expression_key(birth: Birth, op: str | None) -> object:
    """An operation where the source has it, and the element of its result."""
    event, element = birth.event, birth.element
    return (op, event.site, event.library_site, element.shape, element.index) if op and event.site else birth.label


def literal_sinks(root: Root) -> list[Sink]:
    """The sinks at which a literal is an error: a loss, a gradient, a parameter. Elsewhere it merely leaves.

    A NaN that was computed from one is no copy of it any more, and an error wherever it leaves.
    """
    if root.birth.computed:
        return [*root.fatal, *root.observed]
    return [s for s in root.fatal if s.kind in ("loss", "gradient", "parameter")]
