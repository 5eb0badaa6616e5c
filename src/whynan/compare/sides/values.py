"""The values of a run, in memory as far as a bound allows, the rest in a temporary folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_SMALL: Final = 1 << 16


class ValueStore:
    """Arrays by name; those above the budget are written to disk and mapped."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: dict[str, NDArray[Any]] = {}
        self._bytes = 0
        self._folder: str | None = None
        self.spilled = 0
        """How many values are on disk."""

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._held[name]

    def get(self, name: str) -> NDArray[Any] | None:
        """A value; None for what was not kept."""
        return self._held.get(name)

    def keep(self, name: str, value: NDArray[Any]) -> None:
        """Keep an array, which is not to be changed any more."""
        size = value.nbytes
        if size > _SMALL and self._bytes + size > self._budget and value.dtype != object:
            value = self._mapped(value)
        else:
            self._bytes += size
        self._held[name] = value

    def _mapped(self, value: NDArray[Any]) -> NDArray[Any]:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="whynan-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = os.path.join(self._folder, f"{self.spilled}.bin")
        self.spilled += 1
        np.ascontiguousarray(value).reshape(-1).view(np.uint8).tofile(path)
        return np.memmap(path, np.uint8, "r").view(value.dtype).reshape(value.shape)
