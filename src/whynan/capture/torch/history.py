"""The last steps of a training, as few numbers each: how a run came to its bad step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT: Final = 128


@dataclass(frozen=True)
class Entry:
    """One step attempt of an optimizer (its `id`): the last loss, the norm of the gradients, the scale of the loss."""

    optimizer: int
    step: int
    loss: float | None
    norm: float | None
    scale: float | None
    skipped: bool


class History:
    """The last steps, the latest last; `told` is given each of them by `tell`."""

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
    ) -> None:
        """A step is about to be made, or was skipped."""
        unscaled = None if loss is None else loss / (scale or 1.0)
        entry = Entry(id(optimizer), step, unscaled, norm, scale, skipped)
        self._entries.append(entry)
        if self._told is not None:
            self._untold.append(entry)

    def tell(self) -> None:
        """Tell of the steps that nobody was told of."""
        while self._told is not None and self._untold:
            self._told(self._untold.popleft())

    def of(self, optimizer: Any) -> tuple[Entry, ...]:
        """The steps of one optimizer."""
        return tuple(e for e in self._entries if e.optimizer == id(optimizer))
