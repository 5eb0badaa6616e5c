"""A guard that lets steps be made before it has read their numbers: those that it is behind with.

No step waits for its own numbers. Those of the step before have arrived by the next one as a rule; where they have not
they are waited for, so that a program is never more than one step ahead of what is known of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.gates import Gates, begins, open_because
from whynan.capture.torch.judging import Fault, gradients_of, parameters_of, spoilt_of
from whynan.capture.torch.reading import Parts
from whynan.capture.torch.unread import Late, Unread

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.graphs import Captured
    from whynan.capture.torch.marks import Mark
    from whynan.capture.torch.watch import Guard

MOST: Final = 16
"""So many optimizers may have a step that has not been read."""
GOES_ON: Final = 'on_nonfinite="continue" goes on with it'
IN_A_GRAPH: Final = "inside a CUDA graph: whynan sees the step only after it"


class Behind:
    """The last step of each optimizer, while its numbers have not been read; and what holds a bad one back.

    `deferred`: steps are read later. `holds`: bad ones are passed over, where an optimizer can do that.
    """

    def __init__(self, guard: Guard, *, deferred: bool, holds: bool) -> None:
        self.gates = Gates()
        self._guard = guard
        self._deferred = deferred
        self._holds = holds
        self._steps: dict[int, Unread] = {}

    def lets(
        self,
        optimizer: Any,
        step: int,
        parts: Parts,
        gradients: list[tuple[Tensor, Tensor]],
        marks: Callable[[], tuple[Mark, ...]],
    ) -> bool:
        """Let a step be made that is read later; False where it is to be read now."""
        if not self._deferred or begins(optimizer):
            return False
        moved = open_because(optimizer, parts.gradients) if self._holds else GOES_ON
        unread = Unread(optimizer, step, parts, gradients, Late(marks(), moved))
        if not moved and gradients:
            self.gates.close(optimizer, unread.numbers.bad(gradients[0][1].device))
        self._steps[id(optimizer)] = unread
        return True

    def made(self, optimizer: Any, step: int, captured: Captured) -> BaseException | None:
        """A step was made that nothing could hold back; its weights are looked at too."""
        ending = self.catch_up(optimizer)
        with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            gradients = gradients_of(optimizer)
            parts = Parts([g for _, g in gradients], captured.losses, captured.scaler, captured.found_inf)
            weights = tuple(p.detach() for p in parameters_of(optimizer))
            late = Late((), IN_A_GRAPH, graph=True)
            waits = not self._deferred
            self._steps[id(optimizer)] = Unread(optimizer, step, parts, gradients, late, weights=weights, waits=waits)
        return ending if self._deferred or ending is not None else self.catch_up(optimizer)

    def catch_up(self, optimizer: Any) -> BaseException | None:
        """Read the last step of an optimizer, or of another where there are many; gives what a bad one ends with."""
        unread = self._steps.pop(id(optimizer), None)
        if unread is None and len(self._steps) >= MOST:
            unread = self._steps.pop(next(iter(self._steps)))
        return None if unread is None else self._read(unread)

    def settle(self) -> BaseException | None:
        """The same for all of them."""
        endings: list[BaseException | None] = []
        while self._steps:
            endings.append(self._read(self._steps.pop(next(iter(self._steps)))))
        return next((e for e in endings if e is not None), None)

    def _read(self, unread: Unread) -> BaseException | None:
        with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            fault = self._fault(unread)
        return None if fault is None else self._guard.fault(fault)

    def _fault(self, unread: Unread) -> Fault | None:
        """What was bad of a step that was made."""
        reading, here, optimizer = unread.reading(), self._guard.here, unread.optimizer
        late = replace(unread.late, spoilt=unread.spoilt(), moved="" if reading.passed else unread.late.moved)
        norm = None if reading.passed else reading.norm
        self._guard.history.note(optimizer, unread.step, reading.loss, norm, reading.scale, skipped=reading.passed)
        (here.falling.skip if reading.passed else here.falling.made)(reading.scale)
        self._guard.passed_over += reading.passed
        lost = here.falling.lost() if reading.passed else None
        bad = reading.bad_loss(scaled=unread.scaled) or lost is not None
        if not bad and (reading.passed or not (any(reading.bad) or late.spoilt > 0)):
            return None
        judged = unread.judged(reading, () if late.moved else spoilt_of(optimizer))
        return Fault(optimizer, unread.step, judged, here.falling.on_end, lost, late)
