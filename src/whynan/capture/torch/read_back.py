"""Read-back with one step of lag: the numbers of a step are copied to the host meanwhile, and read at the next step.

The copy has arrived by then as a rule; where it has not, the next step waits for it. So a program is never more than
one step ahead of what is known of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whynan.capture.torch.judging import Judged
from whynan.capture.torch.reading import Numbers
from whynan.capture.torch.transfers import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from whynan.capture.torch.reading import Parts, Reading

MOST: Final = 16
"""So many optimizers may have a step that has not been read."""


class ReadBack:
    """One step of an optimizer, whose numbers are on their way to the host.

    `gradients`: by the parameter; no gradient is kept.
    """

    def __init__(self, optimizer: Any, step: int, parts: Parts, gradients: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.optimizer = optimizer
        self.step = step
        self.scaled = parts.scaler is not None
        self._parameters = [parameter for parameter, _ in gradients]
        self._numbers = Numbers(parts, exact=True)
        self._transfer = Transfer(self._numbers.vectors(), waits=False)

    def reading(self) -> Reading:
        """Its numbers; waits for them."""
        return self._numbers.reading(self._transfer.numbers())

    def judged(self, reading: Reading) -> Judged:
        """Which gradients were bad, and whether a loss was; the elements and the bits are gone."""
        bad = tuple((p, None) for p, flag in zip(self._parameters, reading.bad, strict=True) if flag)
        return Judged((), bad, reading.bad_loss(scaled=False))


class PendingReads:
    """The last step of each optimizer, until its numbers are read; `read` gives what a bad one is to end with."""

    def __init__(self, read: Callable[[ReadBack], BaseException | None]) -> None:
        self._read = read
        self._steps: dict[int, ReadBack] = {}

    def add(self, step: ReadBack) -> None:
        """A step is about to be made."""
        self._steps[id(step.optimizer)] = step

    def read(self, optimizer: Any) -> BaseException | None:
        """Read the last step of an optimizer, or of another one where there are many."""
        step = self._steps.pop(id(optimizer), None)
        if step is None and len(self._steps) >= MOST:
            step = self._steps.pop(next(iter(self._steps)))
        return None if step is None else self._read(step)

    def read_all(self) -> BaseException | None:
        """Read the last step of each."""
        endings: list[BaseException | None] = []
        while self._steps:
            endings.append(self._read(self._steps.pop(next(iter(self._steps)))))
        return next((e for e in endings if e is not None), None)
