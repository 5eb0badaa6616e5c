"""The log of sinks, leaves with the gradients that wait in them, and the engine calls that these came from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.torch.shadow_memory import ATTRIBUTE
from whynan.capture.torch.sinks.steps import Steps

if TYPE_CHECKING:
    import weakref

    import torch
    from torch import Tensor

    from whynan.capture.provenance.label_sets import LabelSets
    from whynan.capture.torch.event_log import Rows
    from whynan.capture.torch.shadow_memory import State
    from whynan.capture.torch.sites import Lane
    from whynan.traces import Sink

MOST_CALLS: Final = 64
"""So many modules may be called before the program mends what one before them gave."""
_RESETS: Final = frozenset(["aten.zero_.default", "aten._foreach_zero_.default"])


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
    lane: Lane | None = None
    """Of the thread that called the engine."""
    leaves: dict[int, None] = field(default_factory=lambda: {})


@dataclass(slots=True)
class Leaf:
    """A leaf that a gradient arrived at, the engine calls whose gradients `.grad` holds, and what is bad in it.

    `left` is what the leaf takes along if it is let go of with its gradient.
    """

    reference: weakref.ref[Tensor]
    pending: dict[int, Backward]
    left: list[Sink] = field(default_factory=lambda: [])
    state: weakref.ref[State] | None = None
    """Of the gradient that the last backward left bad, as the thread of that backward saw it."""
    lanes: set[Lane] = field(default_factory=lambda: set())
    """Of the threads whose backwards gave it a gradient."""

    def readable(self, lane: Lane) -> bool:
        """Whether the thread of this lane may read `.grad`.

        To read a gradient while another thread writes or resets it is a race in PyTorch itself, which ends the process.
        """
        return not any(other.running for other in self.lanes if other is not lane)

    def record_gradient(self, lane: Lane) -> None:
        """A backward of this thread gives it a gradient."""
        if lane not in self.lanes:
            self.lanes = {other for other in self.lanes if other.running} | {lane}

    def state_left(self) -> State | None:
        """The state of the bad gradient that its last backward left, if that is there still."""
        return None if self.state is None else self.state()


@dataclass(slots=True)
class Returned:
    """What an outermost module call gave that no backward can follow: sinks, but where the program mends it."""

    sinks: list[Sink]
    labels: frozenset[int]
    storage: weakref.ref[torch.UntypedStorage]
    place: int
    """How many sinks had been found before."""
    mended: bool = False
    """Whether a finite number was made of it."""
    calls: int = 0
    """How many outermost modules were called since."""

    def is_harmless(self, labels: LabelSets) -> bool:
        """Whether the program has mended it, or written over it."""
        storage = self.storage()
        if self.mended or storage is None:
            return self.mended
        plane = getattr(getattr(storage, ATTRIBUTE, None), "plane", None)
        return plane is None or not self.labels & labels.labels_in(plane)


@dataclass(eq=False)
class SinkLog:
    """The sinks that a trace has found, and what of its leaves and outputs may yet become one."""

    found: list[Sink] = field(default_factory=lambda: [])
    fatal_seen: bool = False
    outputs: list[tuple[Sink, int]] = field(default_factory=lambda: [])
    """Outputs of modules that may be followed by a backward, and the ordinals of their events."""
    returned: list[Returned] = field(default_factory=lambda: [])
    """What modules gave without a backward, until it is known whether the program mends it."""
    has_left: bool = False
    """Whether something of that has become a sink."""
    last_backward: int = -1
    steps: Steps = field(default_factory=Steps)
    skipped_steps: int = 0
    leaves: dict[int, Leaf] = field(default_factory=lambda: {})
    unused: dict[int, Leaf] = field(default_factory=lambda: {})
    """Leaves whose gradients nothing has used, by the address of the leaf."""
    leaf_sites: dict[int, tuple[weakref.ref[Tensor], int, Lane]] = field(default_factory=lambda: {})
    """Where each leaf was used first, by its identity, and in which thread."""

    def awaited(self, labels: LabelSets) -> list[Sink]:
        """The outputs that no backward has followed, and nothing has mended."""
        kept = [sink for sink, ordinal in self.outputs if self.last_backward <= ordinal]
        return kept + [sink for one in self.returned if not one.is_harmless(labels) for sink in one.sinks]

    def forget(self, tensor: Tensor) -> None:
        """Keep no weak reference to a tensor."""
        self.leaf_sites.pop(id(tensor), None)
        self.leaves.pop(id(tensor), None)
        self.unused = {k: v for k, v in self.unused.items() if v.reference() is not tensor}

    def forget_all(self) -> None:
        """Keep no weak reference to any tensor."""
        for held in (self.leaf_sites, self.leaves, self.unused):
            held.clear()


def was_reset(rows: Rows, grad: Tensor) -> bool:
    """Whether a gradient was last written by a reset to zero."""
    try:
        row = rows.get(rows.writer_of(grad))
    except (RuntimeError, NotImplementedError):
        return False
    return row is not None and row.operator.name in _RESETS


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
