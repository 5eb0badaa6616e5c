"""A loss scale that falls and falls: whether a scaler still looks for its scale, or none will do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from whynan.records import ScaleFall

SKIPS: Final = 8
"""So many steps skipped, down to a scale of 1 or less: it is not the scale that makes the gradients bad."""
DISCARDS: Final = 33
"""So many times on end a program discards bad gradients by itself: from 2**32, the greatest scale that such scalers
begin with, down to 1."""


@dataclass
class Falling:
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

    def made(self, scale: float | None) -> None:
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

    def lost(self) -> ScaleFall | None:
        """How it fell, where the scaler is not looking for its scale any more; None while it may be."""
        if self._last is not None and self._last > 1.0:
            return None
        if self.on_end >= SKIPS:
            return ScaleFall(skipped=self.on_end, on_end=True, first=self._first_on_end, last=self._last)
        if self._falls >= SKIPS and self._first is not None and self._last is not None and self._last < self._first:
            return ScaleFall(skipped=self._falls, on_end=False, first=self._first, last=self._last)
        return None


@dataclass
class Discards:
    """How often a program has discarded bad gradients by itself, as a scaler written by hand does."""

    count: int = 0
    _on_end: int = 0
    _noticed_in: int | None = None

    def note(self, backward: int) -> None:
        """A gradient is gone that nothing has used, of this backward or one before it; each counts once."""
        if backward != self._noticed_in:
            self.count += 1
            self._on_end += 1
        self._noticed_in = backward

    def made(self) -> None:
        """A step was made of gradients."""
        self._on_end = 0

    def lost(self) -> ScaleFall | None:
        """How often on end, where that is more than the search for a scale takes."""
        return ScaleFall(skipped=self._on_end, on_end=True) if self._on_end >= DISCARDS else None
