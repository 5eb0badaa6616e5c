"""Checkpoint of an optimizer's step while it is traced, so that a step which bears bad numbers itself can be replayed.

A step that is only watched has none: copies of all weights would cost more than the watch.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.sinks.gradients import Fault, gather_evidence, gradients_of, parameters_of
from whynan.replay.mutable_state import ObjectSnapshot
from whynan.replay.undo_log import TooMuch, UndoLog

if TYPE_CHECKING:
    from collections.abc import Generator

    from torch import Tensor

    from whynan.capture.torch.sinks.gradients import Losses


LIMIT: Final = 1 << 28
"""Bytes of copies, of weights, gradients and state together."""


class StepCheckpoint:
    """The weights, gradients and state of one optimizer before its step, and what the step is made of."""

    def __init__(self, optimizer: Any, step: int, losses: Losses) -> None:
        self.optimizer = optimizer
        self._before = _State(optimizer)
        self._fault = Fault(optimizer, step, gather_evidence(optimizer, losses), made=True)
        self._is_evaluated = False

    def evaluate(self, losses: Losses) -> None:
        """The step's closure has run: what the step is made of is what it has left, the first time."""
        if not self._is_evaluated:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                self._fault = replace(self._fault, judged=gather_evidence(self.optimizer, losses))
        self._is_evaluated = True

    @classmethod
    def take(cls, optimizer: Any, step: int, losses: Losses) -> StepCheckpoint | None:
        """Take one before a step; None where the copies are too large, or cannot be made."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            try:
                return cls(optimizer, step, losses)
            except (TooMuch, RuntimeError, NotImplementedError):
                # a tensor that wraps others (DTensor) has no memory of its own
                return None

    @contextmanager
    def rewound(self) -> Generator[Fault | None]:
        """Have the optimizer be as before its step meanwhile, and as it is now afterwards; gives the step as a fault.

        None, and nothing is done, where the step has moved nothing yet, or more than can be kept.
        """
        now: _State | None = None
        if self._before.has_moved():
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad(), suppress(TooMuch):
                now = _State(self.optimizer, beside=self._before.tensors)
        if now is None:
            yield None
            return
        try:
            self._before.restore()
            yield self._fault
        finally:
            now.restore()


class _State:
    """What an optimizer can change: copies of its tensors, and what its containers hold."""

    def __init__(self, optimizer: Any, beside: tuple[Tensor, ...] = ()) -> None:
        self.tensors = (*beside, *_tensors_of(optimizer))
        self._versions = [_version(tensor) for tensor in self.tensors]
        self._entries = len(optimizer.state)
        self._optimizer = optimizer
        self._objects = ObjectSnapshot([optimizer])
        self._copies = UndoLog(limit=LIMIT)
        for tensor in self.tensors:
            self._copies.keep(tensor)

    def has_moved(self) -> bool:
        """Whether something was written, or a state begun, since."""
        written = any(_version(t) != version for t, version in zip(self.tensors, self._versions, strict=True))
        return written or len(self._optimizer.state) != self._entries

    def restore(self) -> None:
        """Put everything back."""
        self._objects.restore()
        self._copies.restore()


def _tensors_of(optimizer: Any) -> list[Tensor]:
    found = [*parameters_of(optimizer), *(gradient for _, gradient in gradients_of(optimizer))]
    for state in optimizer.state.values():
        values = state.values() if isinstance(state, dict) else ()
        found += [value for value in values if isinstance(value, torch.Tensor)]
    return found


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version
