"""What is known of objects by identity, for as long as they live: they need be neither hashable nor comparable."""

# pyright: strict

from __future__ import annotations

import weakref
from typing import Any, Final, Generic, TypeVar

Value = TypeVar("Value")
FEW: Final = 64
"""So many entries may be of objects that are gone, or as many as there are of those that live."""


class Identities(Generic[Value]):
    """A map from objects to values that keeps none of them alive; what cannot be referred to weakly is not kept."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], Value]] = {}
        self._most = FEW

    def get(self, key: Any) -> Value | None:
        """What is known of an object."""
        known = self._held.get(id(key))
        return known[1] if known is not None and known[0]() is key else None

    def set(self, key: Any, value: Value) -> bool:
        """Know something of an object until it is gone; False where that cannot be."""
        try:
            reference = weakref.ref(key)
        except TypeError:
            # a list, a range
            return False
        self._held[id(key)] = reference, value
        if len(self._held) > self._most:
            # not by a callback, which would run wherever the object goes
            self._held = {number: known for number, known in self._held.items() if known[0]() is not None}
            self._most = FEW + 2 * len(self._held)
        return True

    def values(self) -> list[Value]:
        """What is known of all objects that are alive, the latest last."""
        return [value for reference, value in list(self._held.values()) if reference() is not None]

    def keys(self) -> list[Any]:
        """All objects that are alive, the latest last."""
        return [key for reference, _ in list(self._held.values()) if (key := reference()) is not None]
