"""A step that was made before its numbers were read: what is kept of it until they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whynan.capture.torch.judging import Judged, Losses
from whynan.capture.torch.reading import Numbers, Parts
from whynan.capture.torch.transfers import Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.marks import Mark
    from whynan.capture.torch.reading import Reading


@dataclass(frozen=True)
class Late:
    """How a step was made whose fault is found after it.

    `marks`: where the program stood before it. `moved`: why it moved the weights; empty where it was passed over.
    """

    marks: tuple[Mark, ...]
    moved: str = ""
    graph: bool = False
    """It was made in a CUDA graph."""
    spoilt: int = 0
    """How many weights were NaN or Inf after it, where that was looked at."""


class Unread:
    """A step of an optimizer; its numbers are on their way to the host.

    `gradients`: by the parameter. `weights`: looked at too. `waits`: the numbers are read now.
    """

    def __init__(
        self,
        optimizer: Any,
        step: int,
        parts: Parts,
        gradients: list[tuple[Tensor, Tensor]],
        late: Late,
        *,
        weights: tuple[Tensor, ...] = (),
        waits: bool = False,
    ) -> None:
        self.optimizer = optimizer
        self.step = step
        self.late = late
        self.scaled = parts.scaler is not None
        self.numbers = Numbers(parts, exact=True)
        self._weights = Numbers(Parts(weights, ()), exact=True) if weights else None
        self._parameters = [p for p, _ in gradients]
        self._losses = Losses(list(parts.losses))
        own = self.numbers.vectors()
        self._own = len(own)
        more = [] if self._weights is None else self._weights.vectors()
        self._transfer = Transfer([*own, *more], waits=waits)

    def reading(self) -> Reading:
        """Its numbers; waits for them."""
        return self.numbers.reading(self._transfer.numbers()[: self._own])

    def spoilt(self) -> int:
        """How many of the weights are NaN or Inf; waits too."""
        return 0 if self._weights is None else sum(self._weights.reading(self._transfer.numbers()[self._own :]).bad)

    def judged(self, reading: Reading, spoilt: tuple[Tensor, ...]) -> Judged:
        """All that is known of it: which gradients were bad, and no longer which of their elements."""
        bad = tuple((p, None) for p, flag in zip(self._parameters, reading.bad, strict=True) if flag)
        return Judged(self._losses.bits(), bad, reading.bad_loss(scaled=False), spoilt)
