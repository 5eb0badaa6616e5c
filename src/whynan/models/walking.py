"""From a document to what it holds: every tensor and every bad number, with its path."""

# pyright: strict

from __future__ import annotations

import cmath
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias, cast

from torch import Tensor

from whynan.models.naming import spelled
from whynan.models.numpy_state import tensor_of
from whynan.models.stand_ins import StandIn, Wrapper, plain

Numbers: TypeAlias = list[float]
"""A bare number, or the numbers of a list."""

_MODULE: Final = ("_parameters", "_buffers", "_modules")
_LONGEST_KEY: Final = 120


class Place:
    """A part of a path, and the place before it; spelled out only where it is asked for."""

    __slots__ = ("_before", "_part")

    def __init__(self, before: Place | None, part: str) -> None:
        self._before = before
        self._part = part

    def __str__(self) -> str:
        parts: list[str] = []
        place: Place | None = self
        while place is not None:
            parts.append(place._part)
            place = place._before
        return spelled("".join(reversed(parts)).removeprefix("."))


def contents(document: Any) -> Iterator[tuple[str, Tensor | Numbers]]:
    """Each tensor of a document, and each number that is not finite (with its neighbours, where it is in a list).

    In the order of the document. A container that lies in several places is entered at the first.
    """
    entered: set[int] = set()
    waiting: list[tuple[Place | None, Any]] = [(None, document)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, StandIn) and (array := tensor_of(value)) is not None:
            yield _named(place), array
        elif isinstance(value, Tensor) and not isinstance(value, Wrapper):
            yield _named(place), plain(value)
        elif isinstance(value, float | complex):
            if not cmath.isfinite(value):
                yield _named(place), _parts([value])
        elif _is_container(value) and id(value) not in entered:
            entered.add(id(value))
            if numbers := _bad_list(value):
                yield _named(place), numbers
            else:
                waiting += [(Place(place, part), held) for part, held in _children(value)][::-1]


def _named(place: Place | None) -> str:
    return "(the whole file)" if place is None else str(place)


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list | tuple | set | frozenset | StandIn | Tensor)


def _bad_list(value: Any) -> Numbers:
    """The numbers of a list of nothing else, if one of them is bad."""
    if not isinstance(value, list | tuple) or not value:
        return []
    held = cast("list[Any]", value)
    if not all(isinstance(number, int | float | complex) for number in held):
        return []
    # a whole number can be too large to be asked whether it is finite
    bad = any(isinstance(number, float | complex) and not cmath.isfinite(number) for number in held)
    return _parts(held) if bad else []


def _parts(held: list[Any]) -> Numbers:
    parts: list[float] = []
    for number in held:
        parts += [number.real, number.imag] if isinstance(number, complex) else [number]
    return parts


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, StandIn):
        yield from _attributes(value)
    elif isinstance(value, Tensor):
        # of a wrapper only these are elements: the rest tells of shape and placement
        yield from ((_part(name), held) for name, held in vars(value).items() if isinstance(held, Tensor | StandIn))
    elif isinstance(value, dict):
        for key, held in _items(value):
            yield _part(key), held
    else:
        for number, held in enumerate(cast("list[Any]", value)):
            yield f"[{number}]", held


def _items(held: Any) -> Iterable[tuple[Any, Any]]:
    """The items of a mapping, whose attributes may have any name."""
    return cast("Any", dict).items(held)


def _attributes(held: StandIn) -> Iterator[tuple[str, Any]]:
    """What an object holds; of a module under the names that its state_dict would have."""
    for state in _states(held.state):
        if not isinstance(state, dict):
            yield ".state", state
            continue
        named = cast("dict[Any, Any]", state)
        module = all(part in named and isinstance(named[part], dict) for part in _MODULE)
        for key, inner in _items(named):
            if module and key in _MODULE:
                yield from ((_part(name), below) for name, below in _items(inner))
            else:
                yield _part(key), inner
    for number, argument in enumerate(held.arguments):
        yield f"[{number}]", argument


def _states(state: Any) -> list[Any]:
    """The state of an object; one with slots has two."""
    if isinstance(state, tuple):
        pair = cast("tuple[Any, ...]", state)
        if len(pair) == 2 and all(half is None or isinstance(half, dict) for half in pair):
            return [half for half in pair if half is not None]
    return [] if state is None else [state]


def _part(key: Any) -> str:
    if isinstance(key, str):
        return f".{key}"
    if isinstance(key, int) and key.bit_length() <= 64:
        return f"[{key}]"
    if isinstance(key, float | bytes | None):
        text = repr(key)
        return f"[{text}]" if len(text) <= _LONGEST_KEY else f"[{text[:_LONGEST_KEY]}...]"
    return f"[{key.name if isinstance(key, StandIn) else type(key).__name__}]"
