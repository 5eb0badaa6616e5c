"""What is known of objects by identity, for as long as they live: they need be neither hashable nor comparable."""

# pyright: strict

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")


class Identities(Generic[Value]):
    """A map from objects to values that keeps none of them alive; what cannot be referred to weakly is not kept."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Any) -> Value | None:
        """What is known of an object."""
        known = self._held.get(id(key))
        return known[1] if known is not None and known[0]() is key else None

    def set(self, key: Any, value: Value) -> bool:
        """Know something of an object until it is gone; False where that cannot be."""
        number = id(key)
        try:
            reference = weakref.ref(key, partial(_forget, self._held, number))
        except TypeError:
            # a list, a range
            return False
        self._held[number] = reference, value
        return True

    def values(self) -> list[Value]:
        """What is known of all objects that are alive, the latest last."""
        # one call, in which no object can go
        return [value for _, value in list(self._held.values())]


def _forget(held: dict[int, tuple[weakref.ref[Any], Any]], number: int, gone: Callable[[], Any]) -> None:
    known = held.get(number)
    if known is not None and known[0] is gone:
        del held[number]
