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
    """Births made from the same cause after this one."""

    @property
    def fate(self) -> Fate:
        """What became of it."""
        if self.fatal or self.observed:
            return "escaped"
        return "damaging" if self.damaged else "absorbed"


def roots(trace: Trace) -> list[Root]:
    """Every birth and literal with its sinks; a birth made from an escaped forward birth is one of its steps."""
    by_label = {b.label: Root(b) for b in trace.births}
    for sink in trace.sinks:
        for label in sink.labels:
            root = by_label.get(label)
            if root is None:
                continue
            if sink.damage:
                root.damaged.append(sink.of(frozenset((label,))))
            elif sink.fatal:
                root.fatal.append(sink.of(frozenset((label,))))
            else:
                root.observed.append(sink.of(frozenset((label,))))
    _fold(by_label)
    return list(by_label.values())


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
            origin.fatal += root.fatal
            origin.observed += root.observed
            origin.folded |= {label}
            root.fatal, root.observed, root.damaged = [], [], []
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
    known.fatal += root.fatal
    known.observed += root.observed
    known.folded |= {birth.label}
    known.also.append(birth)
    root.fatal, root.observed, root.damaged = [], [], []


def literal_sinks(root: Root) -> list[Sink]:
    """The sinks at which a literal is an error: a loss, a gradient, a parameter. Elsewhere it merely leaves.

    A NaN that was computed from one is no copy of it any more, and an error wherever it leaves.
    """
    if root.birth.computed:
        return [*root.fatal, *root.observed]
    return [s for s in root.fatal if s.kind in ("loss", "gradient", "parameter")]
