"""Kinds of objects, looked up without running the program's code, and iterators that can be put back."""

from __future__ import annotations

import functools
import gc
import logging
import sys
import threading
import types
from _thread import allocate_lock
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from whynan.source.ownership import Owner, owner_of

# -- Static look-ups in a class: its ancestors, names, layout and owner, without running code of the program's ---------
#
# A class is known by its identity: one whose metaclass has an ``__eq__`` may have no hash. ``inspect.getattr_static``
# hashes the class of an instance (Python 3.12), and calls the ``__getattribute__`` of a metaclass.


T = TypeVar("T")

UNBOUND: Final = object()
"""What an empty cell or slot holds."""

_mro_of: Final = type.__dict__["__mro__"].__get__
module_of: Final = type.__dict__["__module__"].__get__
_namespace_of: Final = type.__dict__["__dict__"].__get__
_FRAMES: Final[dict[int, str]] = {
    id(types.GeneratorType): "gi_frame",
    id(types.CoroutineType): "cr_frame",
    id(types.AsyncGeneratorType): "ag_frame",
}
_CACHED: Final = 4096


def namespace_of(cls: Any) -> Any:
    """The names of a class, whatever its own class says."""
    return _namespace_of(cls)


def _cache_by_class(make: Callable[[type], T]) -> Callable[[type], T]:
    """Something about a class, made once for each."""
    known: dict[int, tuple[type, T]] = {}

    @functools.wraps(make)
    def of(kind: type) -> T:
        found = known.get(id(kind))
        if found is None:
            if len(known) >= _CACHED:
                known.clear()
            # the class is held: no other one has its identity meanwhile
            found = known[id(kind)] = kind, make(kind)
        return found[1]

    return of


def identities(kinds: Iterable[type]) -> frozenset[int]:
    """Classes, to be looked up by ``id``."""
    return frozenset(map(id, kinds))


@_cache_by_class
def _ancestors(kind: type) -> frozenset[int]:
    return identities(_mro_of(kind))


def is_a(kind: type, of: type | frozenset[int]) -> bool:
    """Whether a class inherits from another, or one of some `identities`, whatever the other's metaclass says."""
    found = _ancestors(kind)
    return not found.isdisjoint(of) if type(of) is frozenset else id(of) in found


_LOCKS: Final = identities(
    (
        type(allocate_lock()),
        type(threading.RLock()),
        threading.Condition,
        threading.Semaphore,
        threading.Event,
    )
)


def frame_name(kind: type) -> str | None:
    """The name of the frame of what runs piece by piece, which is None at its end; None of anything else."""
    return _FRAMES.get(id(kind))


def owner_of_class(cls: type) -> Owner | None:
    """Whose the module of a class is, or else the code of its functions; None where neither is there."""
    module = sys.modules.get(str(module_of(cls)))
    if module is not None:
        return owner_of(str(vars(module).get("__file__") or "<string>"))
    # A library's code may be run as no module: execnet hands xdist's worker over so.
    functions = (one for one in namespace_of(cls).values() if type(one) is types.FunctionType)
    return next((owner_of(one.__code__.co_filename) for one in functions), None)


def is_shared(kind: type, held: Any) -> bool:
    """Whether an instance with such names is one of a library's that threads share: it holds a lock.

    What another thread has put there meanwhile would be lost if it were put back. What keeps the records of a log is
    put back all the same: a replay logs what was logged before.
    """
    if type(held) is not dict or owner_of_class(kind) in (Owner.USER, None) or is_a(kind, logging.Handler):
        return False
    return any(is_a(type(one), _LOCKS) for one in dict.values(held))


@_cache_by_class
def layout(kind: type) -> tuple[Any, tuple[Any, ...]]:
    """How the instances of a class hold their names: by a ``__dict__`` of Python's own, and in which slots."""
    names, slots = None, []
    for one in _mro_of(kind):
        namespace = namespace_of(one)
        found = namespace.get("__dict__")
        if names is None and found is not None:
            names = found
        if "__slots__" in namespace:
            slots += [s for s in namespace.values() if type(s) is types.MemberDescriptorType]
    return (names if type(names) is types.GetSetDescriptorType else None), tuple(slots)


@_cache_by_class
def iterates(kind: type) -> bool:
    """Whether a class is an iterator whose state is no object's: one that is not written in Python."""
    for one in _mro_of(kind):
        if "__next__" in namespace_of(one):
            return type(namespace_of(one)["__next__"]) is types.WrapperDescriptorType
    return False


def slot_of(slot: Any, value: Any) -> Any:
    """What a slot of an instance holds."""
    try:
        return slot.__get__(value)
    except AttributeError:
        return UNBOUND


# -- Iterators that a call can take from: how far they are, and put back where Python lets them be ---------------------


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
                waiting += _source_iterators(one) if frame_name(type(one)) is None else []

    def restore(self) -> None:
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


def _source_iterators(one: Any) -> list[Any]:
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
        inner = [_place(r) for r in _source_iterators(one) if frame_name(type(r)) is None]
        return frame.f_lasti, *inner, *map(id, gc.get_referents(one))
    hint = getattr(kind, "__length_hint__", None)
    return hint(one) if type(hint) is types.MethodDescriptorType else None
