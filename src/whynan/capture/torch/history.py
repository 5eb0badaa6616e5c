"""The last steps of a training, as few numbers each: how a run came to its bad step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.torch import reading
from whynan.capture.torch.samples import ratio_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

KEPT: Final = 128


@dataclass
class Entry:
    """One step attempt of an optimizer (its `id`): the last loss, the norm of the gradients, the scale of the loss.

    `moved`: the norm of what a sample of the weights has moved by, and of the sample; on the device until it is read.
    """

    optimizer: int
    step: int
    loss: float | None
    norm: float | None
    scale: float | None
    skipped: bool
    moved: tuple[Tensor, Tensor] | None = None
    _ratio: float | None = None

    @property
    def update_ratio(self) -> float | None:
        """By how much of themselves the weights have moved."""
        return self._ratio if self.moved is None else ratio_of(self.moved)

    def settle(self) -> None:
        """Hold no tensor whose number can be read: small ones that stay would scatter the memory of large ones."""
        if self.is_there:
            self._ratio, self.moved = self.update_ratio, None

    @property
    def is_there(self) -> bool:
        """Whether its numbers can be read without waiting for a device."""
        return self.moved is None or reading.is_on_host(self.moved[0])


class History:
    """The last steps, the latest last; `told` is given each of them as soon as nothing more will be known of it."""

    def __init__(self, told: Callable[[Entry], None] | None = None) -> None:
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._untold: deque[Entry] = deque()
        self._told = told

    def note(
        self,
        optimizer: Any,
        step: int,
        loss: float | None,
        norm: float | None,
        scale: float | None,
        *,
        skipped: bool = False,
    ) -> Entry:
        """A step is about to be made, or was skipped."""
        # the norm of this one has been waited for: those before it are there
        self.tell()
        if self._entries:
            self._entries[-1].settle()
        unscaled = None if loss is None else loss / (scale or 1.0)
        entry = Entry(id(optimizer), step, unscaled, norm, scale, skipped)
        self._entries.append(entry)
        if self._told is not None:
            self._untold.append(entry)
        return entry

    def tell(self, *, waits: bool = True) -> None:
        """Tell of the steps that nobody was told of; unless it `waits`, up to the first that a device is still at."""
        while self._told is not None and self._untold and (waits or self._untold[0].is_there):
            self._told(self._untold.popleft())

    def of(self, optimizer: Any) -> tuple[Entry, ...]:
        """The steps of one optimizer."""
        return tuple(e for e in self._entries if e.optimizer == id(optimizer))
