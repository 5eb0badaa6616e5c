"""Escaped, damaging or absorbed: which births reached a sink, and whether a sink was fatal."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.records import Fate
    from whynan.traces import Birth, Sink, Trace


@dataclass(slots=True)
class Root:
    """A birth with the sinks that it reached, directly or through births made from it."""

    birth: Birth
    fatal: list[Sink] = field(default_factory=lambda: [])
    observed: list[Sink] = field(default_factory=lambda: [])
    damaged: list[Sink] = field(default_factory=lambda: [])
    folded: frozenset[int] = frozenset()
    """Labels of the births that are steps of this one's chain."""
    also: list[Birth] = field(default_factory=lambda: [])
    """Births made from the same cause by later events."""
    told: bool = False
    """Whether another root has taken its sinks over and tells of it."""

    @property
    def fate(self) -> Fate:
        """What became of it."""
        if self.fatal or self.observed:
            return "escaped"
        return "damaging" if self.damaged else "absorbed"

    def take(self, other: Root) -> None:
        """Tell of another root as a step of this one."""
        self.fatal = _once(self.fatal, other.fatal)
        self.observed = _once(self.observed, other.observed)
        self.folded |= {other.birth.label}
        other.told = bool(other.fatal or other.observed or other.damaged)
        other.fatal, other.observed, other.damaged = [], [], []

    def count(self) -> None:
        """Have every sink count the elements that carry this root or one folded into it, each once."""
        labels = self.folded | {self.birth.label}
        for sinks in (self.fatal, self.observed, self.damaged):
            sinks[:] = [sink.of(labels) for sink in sinks]


def _once(first: list[Sink], second: list[Sink]) -> list[Sink]:
    """The sinks of two roots in the order of time, without those that both have reached."""
    known = {id(sink) for sink in first}
    return [*first, *(sink for sink in second if id(sink) not in known)]


def roots(trace: Trace) -> list[Root]:
    """Every birth and literal with its sinks; a birth made from an escaped forward birth is one of its steps.

    What is a step of another is no root.
    """
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
    _fold(by_label)
    found = [root for root in by_label.values() if not root.told]
    for root in found:
        root.count()
    return found


def _fold(by_label: dict[int, Root]) -> None:
    """A backward birth whose forward cause escaped by itself is no root of its own.

    Nor is one whose cause has made another in the backward before: both are the forward value's coming back.
    """
    first: dict[frozenset[int], Root] = {}
    for label in sorted(by_label):
        root = by_label[label]
        for cause in root.birth.causes:
            origin = by_label.get(cause)
            if origin is None or origin.birth.label_kind == "literal" or not origin.fatal:
                continue
            origin.take(root)
            break
        else:
            _fold_into_first(root, by_label, first)


def _fold_into_first(root: Root, by_label: dict[int, Root], first: dict[frozenset[int], Root]) -> None:
    birth = root.birth
    causes = frozenset(c for c in birth.causes if c in by_label and by_label[c].birth.label_kind != "literal")
    if birth.event.phase != "backward" or not causes or not (root.fatal or root.observed):
        return
    known = first.setdefault(causes, root)
    if known is root or known.birth.scope != birth.scope:
        return
    known.take(root)
    if birth.event.ordinal != known.birth.event.ordinal:
        known.also.append(birth)


def literal_sinks(root: Root) -> list[Sink]:
    """The sinks at which a literal is an error: a loss, a gradient, a parameter. Elsewhere it merely leaves.

    A NaN that was computed from one is no copy of it any more, and an error wherever it leaves.
    """
    if root.birth.computed:
        return [*root.fatal, *root.observed]
    return [s for s in root.fatal if s.kind in ("loss", "gradient", "parameter")]
