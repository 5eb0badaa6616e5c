"""Steps that a loss scaler skips: what is bad in their gradients reaches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch import experiments

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.sinks import Sinks


class Scaler:
    """What a loss scaler of the program's has seen, and what it will not let through."""

    def __init__(self, sinks: Sinks) -> None:
        self.sinks = sinks
        self.waits = False
        """Whether it saw Inf, and the step that it skips has not been settled."""
        self._skipping: list[Tensor] = []

    def unscaled(self, args: Any) -> None:
        """It looked at gradients: what is bad in them it will skip."""
        grads = experiments.tensors_in(args[0])
        found_inf = args[1] if len(args) > 1 else None
        if not isinstance(found_inf, torch.Tensor) or not bool((found_inf != 0).any()):
            return
        self.waits = True
        self._forget(grads)

    def settle(self) -> None:
        """It saw Inf and no step came: that was the attempt, and it was skipped."""
        if self.waits:
            self.waits = False
            tracer = self.sinks.tracer
            self.sinks.steps.skip(tracer.ordinal - tracer.first)
            tracer.skipped_steps += 1

    def skips(self, grads: list[Tensor]) -> None:
        """The optimizer is called with gradients that it was told to skip."""
        self._skipping = grads
        self._forget(grads)

    def skipped(self) -> None:
        """That call has ended; a fused optimizer is recorded as writing the gradients that it skipped."""
        self._forget(self._skipping)
        self._skipping = []

    def _forget(self, grads: list[Tensor]) -> None:
        """Gradients that are skipped reach nothing; a loss that was bad at any scale does."""
        if not grads:
            return
        for grad in grads:
            state = self.sinks.tracer.state_of(grad)
            if state is not None:
                state.skipped = True
        skipped = {id(g) for g in grads}
        for leaf in self.sinks.leaves.values():
            tensor = leaf.reference()
            if tensor is not None and id(tensor.grad) in skipped:
                for record in leaf.pending.values():
                    # no scale cures a loss that was bad before it
                    self.sinks.found += record.incurable
                    record.incurable = []
                leaf.pending.clear()
                leaf.left = []
