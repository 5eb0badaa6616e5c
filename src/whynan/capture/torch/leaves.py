"""Leaves with the gradients that wait in them, and the engine calls that these came from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import weakref

    from torch import Tensor

    from whynan.traces import Sink


@dataclass(slots=True)
class Backward:
    """One call of the engine: the bad labels of its roots, and whether anything used its gradients."""

    number: int
    loss: list[Sink]
    start: int = 0
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


def distinct(found: list[Sink]) -> list[Sink]:
    """One sink a place, at its worst: a parameter that stays bad for a thousand steps is one."""
    worst: dict[Any, Sink] = {}
    for sink in found:
        key = (sink.kind, sink.name, sink.labels, sink.damage)
        known = worst.get(key)
        if known is None:
            worst[key] = sink
        elif sink.bad > known.bad:
            worst[key] = replace(sink, owner=known.owner)
    return list(worst.values())
