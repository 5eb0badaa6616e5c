"""The steps that an edited program makes from its bad step on: whether they and what they leave behind are finite."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.judging import is_finite, judge, parameters_of, spoilt_of

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.judging import Fault, Judged, Losses
    from whynan.capture.torch.undo import Undo

FURTHER: Final = 10
"""So many steps are made after the one that was bad."""


class Onward:
    """The steps of one trial, the bad one first; `seconds`: of processor time that the further ones may take."""

    def __init__(self, fault: Fault, seconds: float) -> None:
        self.first: Judged | None = None
        """What the step that was bad is made of now."""
        self.steps = 0
        """How many were made."""
        self.bad: str | None = None
        """What became bad after that step."""
        self.over = False
        self.used = 0.0
        self._fault = fault
        self._seconds = seconds
        self._began = 0.0
        self._made: Counter[int] = Counter()
        self._bad_before: frozenset[int] = frozenset()

    @property
    def further(self) -> int:
        """How many steps were made after the first."""
        return max(0, self.steps - 1)

    def takes(self, optimizer: Any) -> bool:
        """Whether a step of an optimizer is one of them."""
        return self.first is not None or self._fault.decision is not None or optimizer is self._fault.optimizer

    def before(self, optimizer: Any, losses: Losses, undo: Undo) -> bool:
        """A step is about to be made; whether it is to be made, too."""
        judged = judge(optimizer, losses)
        if self.first is None:
            self.first, self._began = judged, time.process_time()
            self.over = not judged.is_good
        elif judged.bad_loss or (judged.bad and not getattr(optimizer, "found_inf", None)):
            what = [*(["the loss"] if judged.bad_loss else []), *(["the gradients"] if judged.bad else [])]
            self.ends(f"with it step {self._step(optimizer)} is bad: NaN or Inf in {' and '.join(what)}")
        self.used = time.process_time() - self._began
        self.over = self.over or self.steps > FURTHER or (self.steps > 0 and self.used > self._seconds)
        if not self.over:
            # what writes without operators is put back too
            for tensor in (*parameters_of(optimizer), *(state for _, state in _states(optimizer))):
                undo.keep(tensor)
            self._bad_before = frozenset(id(state) for _, state in _states(optimizer) if not is_finite(state))
        return not self.over

    def after(self, optimizer: Any) -> None:
        """A step has been made."""
        state = next((n for n, s in _states(optimizer) if id(s) not in self._bad_before and not is_finite(s)), None)
        if spoilt_of(optimizer):
            self.ends(f"with it step {self._step(optimizer)} leaves NaN or Inf in the weights")
        elif state is not None:
            self.ends(f"with it step {self._step(optimizer)} leaves NaN or Inf in {state} of the optimizer")
        self.steps += 1
        self._made[id(optimizer)] += 1
        self.used = time.process_time() - self._began

    def ends(self, bad: str) -> None:
        """Something is bad."""
        self.bad, self.over = bad, True

    def decides(self) -> None:
        """The program has decided on a number that is NaN or Inf."""
        step = self._fault.step + max(self._made.values(), default=0)
        self.ends(f"with it step {step} is bad: the program decides on a number that is NaN or Inf")

    def _step(self, optimizer: Any) -> int:
        return self._fault.step + self._made[id(optimizer)]


def _states(optimizer: Any) -> list[tuple[str, Tensor]]:
    """What an optimizer keeps of each element of its parameters, with its name."""
    state: Any = getattr(optimizer, "state", {})
    return [
        (str(name), value)
        for parameter in parameters_of(optimizer)
        for name, value in state.get(parameter, {}).items()
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.is_floating_point()
    ]
