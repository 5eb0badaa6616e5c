"""The course of a training from its start: the losses and the norms of the gradients, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.sinks.gradients import gather_evidence, parameters_of
from whynan.training.replay import FURTHER, TrialSteps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.torch.sinks.gradients import Fault, Losses
    from whynan.training.listeners import Entry

_TIMES: Final = 10
"""A training that is made slower may fail later: it is looked at for so many times as many steps, if time allows."""


@dataclass(frozen=True, slots=True)
class Course:
    """The steps of an optimizer: the last loss of each, the norm of its gradients, and what became bad, if anything.

    ``wanted``: the step at which the program had failed. A step without a loss has NaN there.
    """

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    wanted: int
    bad: str | None = None
    moves: bool = True
    """Whether a weight is another at some step than at the first."""

    def comes_to(self, step: int, known: Sequence[Entry]) -> bool:
        """Whether it ends ahead of a step, and its losses up to there are those that are known of the run's own."""
        pairs = [(self.losses[e.step - 1], e.loss) for e in known if e.step <= len(self.losses) and e.loss is not None]
        return len(self.losses) == step - 1 and all(math.isclose(one, two, rel_tol=1e-6) for one, two in pairs)


class CourseSteps(TrialSteps):
    """What keeps the course of a training as it is run from its start."""

    def __init__(self, fault: Fault, seconds: float) -> None:
        super().__init__(fault, seconds)
        self.most = max(FURTHER, (_TIMES - 1) * fault.step)
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._weights: dict[float, None] = {}
        """The norms of all weights, each once."""

    def course(self, raised: str) -> Course:
        """What was kept; ``raised``: what the program has raised on its way."""
        bad = self.bad or (f"with it the program stops: {raised}" if raised else None)
        moves = len(self._weights) > 1 or len(self._losses) < 2
        return Course(tuple(self._losses), tuple(self._norms), self._fault.step, bad, moves)

    def pass_step(self, optimizer: Any, losses: Losses) -> bool:
        """A step ahead of that which was bad is about to be made."""
        judged = gather_evidence(optimizer, losses)
        self._keep(optimizer, losses)
        if not judged.is_good and not getattr(optimizer, "found_inf", None):
            self.first = judged
            self.stop_at(f"with it step {len(self._losses)} is bad already")
        return super().pass_step(optimizer, losses)

    def begin_step(self, optimizer: Any, losses: Losses, undo: Any) -> bool:
        """That step or a later one is about to be made."""
        self._keep(optimizer, losses)
        goes = super().begin_step(optimizer, losses, undo)
        if self.first is not None and not self.first.is_good and self.bad is None:
            self.stop_at(f"with it step {len(self._losses)} is bad still")
        return goes

    def _keep(self, optimizer: Any, losses: Losses) -> None:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            weights = parameters_of(optimizer)
            self._norms.append(_norm([p.grad for p in weights if p.grad is not None]))
            self._weights[_norm(weights)] = None
        self._losses.append((losses.numbers() or (float("nan"),))[-1])


def _norm(tensors: Sequence[Any]) -> float:
    """The norm of all their elements together."""
    dense = [t.coalesce().values() if t.is_sparse else t for t in tensors]
    norms = [torch.linalg.vector_norm(t, dtype=torch.float64) for t in dense if t.is_floating_point()]
    return float(torch.stack(norms).norm()) if norms else 0.0
