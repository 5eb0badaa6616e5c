"""Loss scaling: steps that a scaler skips, and a scale that falls and falls."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.provenance import interventions
from whynan.records import Note, ScaleFall

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.sinks.sink_log import Leaf
    from whynan.capture.torch.sites import Lane
    from whynan.records import SinkKind
    from whynan.traces import Sink


# -- A loss scale that falls and falls: whether a scaler still looks for its scale, or none will do --------------------


SKIPS: Final = 8
"""So many steps skipped, down to a scale of 1 or less: it is not the scale that makes the gradients bad."""
_OF_BACKWARD: Final = frozenset({"backward", "accumulation"})
_SCALERS: Final = inspect.getfile(torch.amp.GradScaler)
DISCARDS: Final = 33
"""So many times on end a program discards bad gradients by itself: from 2**32, the greatest scale that such scalers
begin with, down to 1."""


@dataclass
class ScaleFallCounter:
    """The steps that a scaler has skipped: on end, and since its scale last rose."""

    on_end: int = 0
    _falls: int = 0
    _first: float | None = None
    """The scale of the first of these."""
    _first_on_end: float | None = None
    _last: float | None = None

    def skip(self, scale: float | None) -> None:
        """A step was skipped at this scale."""
        self._see(scale)
        if not self.on_end:
            self._first_on_end = scale
        if not self._falls:
            self._first = scale
        self.on_end += 1
        self._falls += 1

    def record_step(self, scale: float | None) -> None:
        """A step was made at this scale."""
        self._see(scale)
        self.on_end = 0

    def forget(self) -> None:
        """Begin to count anew."""
        self.on_end = self._falls = 0

    def _see(self, scale: float | None) -> None:
        if scale is None:
            return
        if self._last is not None and scale > self._last:
            self._falls = 0
        self._last = scale

    def scale_fall(self) -> ScaleFall | None:
        """How it fell, where the scaler is not looking for its scale any more; None while it may be."""
        if self._last is not None and self._last > 1.0:
            return None
        if self.on_end >= SKIPS:
            return ScaleFall(skipped=self.on_end, on_end=True, first=self._first_on_end, last=self._last)
        if self._falls >= SKIPS and self._first is not None and self._last is not None and self._last < self._first:
            return ScaleFall(skipped=self._falls, on_end=False, first=self._first, last=self._last)
        return None


def _scale_around() -> float | None:
    """The scale of the scaler of torch's that is at work in this thread; None where there is none."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == _SCALERS:
            scale = getattr(frame.f_locals.get("self"), "_scale", None)
            return float(scale) if isinstance(scale, torch.Tensor) and scale.numel() == 1 else None
        frame = frame.f_back
    return None


@dataclass
class DiscardCounter:
    """How often a program has discarded bad gradients by itself, as a scaler written by hand does."""

    count: int = 0
    _on_end: int = 0
    _noticed_in: int | None = None

    def record_discard(self, backward: int) -> None:
        """A gradient is gone that nothing has used, of this backward or one before it; each counts once."""
        if backward != self._noticed_in:
            self.count += 1
            self._on_end += 1
        self._noticed_in = backward

    def record_step(self) -> None:
        """A step was made of gradients."""
        self._on_end = 0

    def scale_fall(self) -> ScaleFall | None:
        """How often on end, where that is more than the search for a scale takes."""
        return ScaleFall(skipped=self._on_end, on_end=True) if self._on_end >= DISCARDS else None


# -- Steps that a loss scaler skips: what is bad in their gradients reaches nothing ------------------------------------


class Scaler:
    """What a loss scaler of the program's has seen, and what it will not let through.

    `consume` is called with a leaf whose gradient is used.
    """

    def __init__(self, context: TraceContext, consume: Callable[[Tensor, SinkKind], None]) -> None:
        self.context = context
        self.log = context.log
        self.consume = consume
        self.waits = False
        """Whether it saw Inf, and the step that it skips has not been settled."""
        self._skipping: list[Tensor] = []
        self._falling = ScaleFallCounter()
        self._scale: float | None = None
        self._discards = DiscardCounter()
        self._refused: frozenset[int] = frozenset()
        """The labels of the gradients that it will skip."""
        self._skipped = frozenset[int]()
        """The labels of what the scale has made of the gradients that it has skipped."""
        self._checked: list[Sink] = []
        """What was read of gradients that nothing has used yet."""
        self._excused: list[Sink] = []
        """What was read of gradients that were discarded then: that was the look at them."""
        self._lost: ScaleFall | None = None
        self.given: ScaleFall | None = None
        """How the scale fell before the one step that is looked at, where the scaler is lost."""

    def record_unscale(self, args: Any) -> None:
        """It looked at gradients: what is bad in them it will skip, unless it has skipped them too often."""
        grads = interventions.tensors_in(args[0])
        found_inf, inverse = (*args[1:3], None, None)[:2]
        divisor = float(inverse) if isinstance(inverse, torch.Tensor) and inverse.numel() == 1 else 0.0
        # for an optimizer that divides by the scale itself it only looks, and divides by 1
        scale = _scale_around() if divisor == 1.0 else None
        if scale is not None:
            self._scale = scale
        elif divisor:
            self._scale = 1.0 / divisor
        if not isinstance(found_inf, torch.Tensor) or not bool((found_inf != 0).any()):
            return
        if not self.waits:
            self._falling.skip(self._scale)
        self.waits = True
        lost = self.given or self._falling.scale_fall()
        if lost is not None:
            self._lost = lost
            self._tell(grads, lost)
        found = self._labels_of(grads)
        self._refused |= found
        if lost is None:
            self._skipped |= self._made_by_scale(grads, found)
        self._forget(grads)

    def record_step(self) -> None:
        """A step is made of gradients, by which a scaler does not skip it."""
        self._discards.record_step()
        self._falling.record_step(self._scale)

    # -- a program that skips steps by itself ------------------------------------------------------------------------

    def is_discardable_read(self, sink: Sink) -> bool:
        """Whether what the program reads stands in gradients that it may yet discard, or that a scaler skips."""
        if sink.labels and sink.labels <= self._skipped:
            # the norm of gradients that were clipped for nothing
            return True
        left = frozenset(label for leaf in self.log.leaves.values() for s in leaf.left for label in s.labels)
        if not sink.labels or not sink.labels <= left:
            return False
        self._checked.append(sink)
        return True

    def begin_backward(self, lane: Lane) -> None:
        """A backward of this thread begins: what is gone of the gradients of those before it, nothing has used."""
        self.record_skipped_step()
        leaves = [leaf for leaf in self.log.leaves.values() if leaf.left]
        used = {label for s in self.log.found if s.fatal for label in s.labels} if leaves else set[int]()
        for leaf in leaves:
            tensor = leaf.reference()
            if tensor is None:
                continue
            if not leaf.readable(lane):
                gone = leaf.state_left() is None
            else:
                gone = tensor.grad is None or self.context.state_of(tensor.grad) is None
            if gone:
                self._discard(leaf, used)

    def _discard(self, leaf: Leaf, used: set[int]) -> None:
        left, leaf.left = leaf.left, []
        if all(s.labels & used for s in left):
            # of a copy of it a step was made
            return
        self._discards.record_discard(self.log.last_backward)
        lost = self._discards.scale_fall()
        if lost is not None:
            self._lost = lost
            self.log.found += [replace(s, scale_fall=lost) for s in left]
        gone = frozenset(label for s in left for label in s.labels)
        self._excused += [s for s in self._checked if s.labels & gone]
        self._checked = [s for s in self._checked if not s.labels & gone]

    def finish(self, lane: Lane) -> None:
        """The run has ended: what was read of gradients that no training discards was no look at them."""
        self.begin_backward(lane)
        self.log.found += self._checked
        if not self.log.steps.met:
            self.log.found += self._excused
        self._checked = []
        # the last word of how far it fell
        self.log.found = [replace(s, scale_fall=s.scale_fall and self._lost) for s in self.log.found]
        if self._discards.count:
            self.context.notes[Note.create("discarded_gradients", times=self._discards.count)] = None

    # -- a scaler of torch's -----------------------------------------------------------------------------------------

    def record_skipped_step(self) -> None:
        """It saw Inf and no step came: that was the attempt, and it was skipped."""
        if self.waits:
            self.waits = False
            self.log.steps.skip(self.context.ordinal - self.context.first)
            self.log.skipped_steps += 1
            # what was clipped since by a norm that is bad is bad by that
            held = [tensor.grad for leaf in self.log.leaves.values() if (tensor := leaf.reference()) is not None]
            for grad in (grad for grad in held if grad is not None):
                state = self.context.state_of(grad)
                if state is not None and (labels := self._labels_of([grad])) and labels <= self._refused:
                    state.skipped = True
        self._refused = frozenset()

    def _labels_of(self, grads: list[Tensor]) -> frozenset[int]:
        """Where that came from which is bad in some gradients, or wrong by it."""
        states = (self.context.state_of(grad) for grad in grads)
        planes = (plane for state in states if state is not None for plane in (state.plane, state.taint))
        return frozenset[int]().union(*(self.context.labels.labels_in(plane) for plane in planes if plane is not None))

    def _made_by_scale(self, grads: list[Tensor], found: frozenset[int]) -> frozenset[int]:
        """Which of the labels of some gradients were born in the backward, or where the loss was scaled."""
        records = [record for leaf in self._holding(grads) for record in leaf.pending.values()]
        incurable = {label for record in records for s in record.incurable for label in s.labels}
        scaled = {label for record in records for s in record.loss for label in s.labels} - incurable
        return frozenset(n for n in found if n in scaled or self.context.labels.birth(n).event.phase in _OF_BACKWARD)

    def begin_skip(self, grads: list[Tensor]) -> None:
        """The optimizer is called with gradients that it was told to skip."""
        self._skipping = grads
        self._forget(grads)

    def end_skip(self) -> None:
        """That call has ended; a fused optimizer is recorded as writing the gradients that it skipped."""
        self._forget(self._skipping)
        self._skipping = []

    def _tell(self, grads: list[Tensor], lost: ScaleFall) -> None:
        """Gradients that no scale makes finite are the end of a training."""
        known = len(self.log.found)
        for leaf in self._holding(grads):
            tensor = leaf.reference()
            if tensor is not None:
                self.consume(tensor, "gradient")
        self.log.found[known:] = [replace(s, scale_fall=lost) for s in self.log.found[known:]]

    def _forget(self, grads: list[Tensor]) -> None:
        """Gradients that are skipped reach nothing; a loss that was bad at any scale does."""
        if not grads:
            return
        for grad in grads:
            state = self.context.state_of(grad)
            if state is not None:
                state.skipped = True
        for leaf in self._holding(grads):
            for record in leaf.pending.values():
                # no scale cures a loss that was bad before it
                self.log.found += record.incurable
                record.incurable = []
            leaf.pending.clear()
            leaf.left = []

    def _holding(self, grads: list[Tensor]) -> list[Leaf]:
        """The leaves whose gradients these are."""
        numbers, states = {id(g) for g in grads}, {id(self.context.state_of(g)) for g in grads}
        lane = self.context.lane()
        held: list[Leaf] = []
        for leaf in self.log.leaves.values():
            tensor = leaf.reference()
            if tensor is None:
                continue
            if leaf.readable(lane):
                holds = id(tensor.grad) in numbers
            else:
                state = leaf.state_left()
                holds = state is not None and id(state) in states
            if holds:
                held.append(leaf)
        return held
