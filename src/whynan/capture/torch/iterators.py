"""Iterators that a call can take from: how far they are, and put back where Python lets them be."""

from __future__ import annotations

import gc
import types
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.torch.kinds import frame_name, iterates

if TYPE_CHECKING:
    from collections.abc import Iterable

_SETTABLE: Final = (type(iter([])), type(iter(())))
"""They go back to a place as long as they have not come to their end."""
_MOST: Final = 1000


class Iterators:
    """How far some iterators are, and those that these take from; no code of the program's runs."""

    def __init__(self, found: Iterable[Any]) -> None:
        self._known: dict[int, tuple[Any, object]] = {}
        waiting = list(found)
        while waiting and len(self._known) < _MOST:
            one = waiting.pop()
            if id(one) not in self._known:
                self._known[id(one)] = one, _place(one)
                waiting += _within(one) if frame_name(type(one)) is None else []

    def put_back(self) -> None:
        """Have those that can be put back give again what they have given since."""
        for one, place in self._known.values():
            # at its end it has let go of what it took from
            if type(one) in _SETTABLE and isinstance(place, int) and _place(one) is not None:
                one.__setstate__(place)

    @property
    def advanced(self) -> str | None:
        """What cannot be put back and has gone on since, or has come to its end: in words."""
        for one, place in self._known.values():
            now = _place(one)
            if now != place and (type(one) not in _SETTABLE or now is None):
                return f"a {type(one).__name__.replace('_', ' ')}"
        return None


def _within(one: Any) -> list[Any]:
    """The iterators that an iterator takes from."""
    return [r for r in gc.get_referents(one) if frame_name(type(r)) is not None or iterates(type(r))]


def _place(one: Any) -> object:
    """How far an iterator is; None at its end, and where it does not tell."""
    kind = type(one)
    if kind in _SETTABLE:
        told = one.__reduce__()
        return told[2] if len(told) > 2 else None
    if kind is enumerate:
        return one.__reduce__()[1][1]
    name = frame_name(kind)
    if name is not None:
        frame = getattr(one, name)
        if frame is None:
            return None
        inner = [_place(r) for r in _within(one) if frame_name(type(r)) is None]
        return frame.f_lasti, *inner, *map(id, gc.get_referents(one))
    hint = getattr(kind, "__length_hint__", None)
    return hint(one) if type(hint) is types.MethodDescriptorType else None
