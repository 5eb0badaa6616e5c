"""Leaves with the gradients that wait in them, and the engine calls that these came from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import weakref

    from torch import Tensor

    from whynan.capture.label_sets import LabelSets
    from whynan.traces import Sink


@dataclass(slots=True)
class Backward:
    """One call of the engine: the bad labels of its roots, and whether anything used its gradients.

    `incurable`: what is bad in the roots at any loss scale, being born before the scale was multiplied in.
    """

    number: int
    loss: list[Sink]
    start: int = 0
    incurable: list[Sink] = field(default_factory=lambda: [])
    used: bool = False
    leaves: dict[int, None] = field(default_factory=lambda: {})


@dataclass(slots=True)
class Leaf:
    """A leaf that a gradient arrived at, the engine calls whose gradients `.grad` holds, and what is bad in it.

    `left` is what the leaf takes along if it is let go of with its gradient.
    """

    reference: weakref.ref[Tensor]
    pending: dict[int, Backward]
    left: list[Sink] = field(default_factory=lambda: [])


def incurable(loss: list[Sink], labels: LabelSets, last: set[int]) -> list[Sink]:
    """A loss as a sink of what was born before its last operation, which multiplies it by the scale.

    `last`: the events that wrote the roots of a backward.
    """
    made: list[Sink] = []
    for sink in loss:
        early = frozenset(n for n in sink.labels if labels.birth(n).event.ordinal not in last)
        if early:
            made.append(replace(sink, labels=early))
    return made


def distinct(found: list[Sink]) -> list[Sink]:
    """One sink a place, at its worst: a parameter that stays bad for a thousand steps is one."""
    worst: dict[Any, Sink] = {}
    for sink in found:
        key = (sink.kind, sink.name, sink.labels, sink.damage)
        known = worst.get(key)
        if known is None:
            worst[key] = sink
        else:
            worse = replace(sink, owner=known.owner) if sink.bad > known.bad else known
            worst[key] = replace(worse, decision=known.decision or sink.decision)
    return list(worst.values())
