"""What the process holds: by the collector's list, or as far as a program's names and frames lead."""

from __future__ import annotations

import functools
import gc
import io
import logging
import sys
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import compress
from operator import attrgetter
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, Final

from whynan.source.ownership import Owner, owner_of

# -- All objects of some kinds -----------------------------------------------------------------------------------------
#
# There are half a million. While a proof tries one change after another, those that were there at its start are listed
# once, and the collector passes them by.


CACHES: Final = type(functools.lru_cache(len))
SUSPENDED: Final = {GeneratorType: "gi_code", CoroutineType: "cr_code", AsyncGeneratorType: "ag_code"}
_LISTED: Final = (CACHES, *SUSPENDED, io.IOBase)
"""What is asked for again and again, beside functions."""


class _Listing:
    """The functions that there are at one moment, by their files, and what else is asked for."""

    def __init__(self) -> None:
        held = gc.get_objects()
        # it does not keep alive what the program lets go of
        self.functions: dict[str, list[weakref.ref[FunctionType]]] = {}
        for function in _of_type(FunctionType, held):
            self.functions.setdefault(function.__code__.co_filename, []).append(weakref.ref(function))
        kinds = {kind for kind in set(map(type, held)) if issubclass(kind, _LISTED)}
        self.others = [weakref.ref(one) for one in held if type(one) in kinds]


_once = False
_listing: _Listing | None = None


@contextmanager
def listed_once() -> Generator[None]:
    """While the block runs, what is there when it is first asked for is not looked through again, and not collected.

    Nothing is done where a program has frozen objects of its own.
    """
    global _listing, _once
    outer, _once = _once, True
    try:
        yield
    finally:
        _once = outer
        if not outer:
            _unlist()


def _unlist() -> None:
    global _listing
    if _listing is not None:
        _listing = None
        gc.unfreeze()


def _listed() -> _Listing | None:
    global _listing
    if _once and _listing is None and not gc.get_freeze_count():
        # nothing is collected ahead: the program would meet its finalizers here
        _listing = _Listing()
        gc.freeze()
    return _listing


def is_hidden() -> bool:
    """Whether the program has objects that are not listed."""
    return _listing is None and bool(gc.get_freeze_count())


# What the collector lists is held by nobody but the function that asks: a tuple that is being made could not grow.


def live_functions(is_wanted: Callable[[str], bool]) -> list[FunctionType]:
    """The functions of some files: no code is hashed, which takes a second for all of them."""
    listed = _listed()
    functions = _of_type(FunctionType, gc.get_objects())
    files = list(map(attrgetter("__code__.co_filename"), functions))
    wanted = {file for file in set(files) if is_wanted(file)}
    found = list(compress(functions, map(wanted.__contains__, files)))
    for file, known in listed.functions.items() if listed is not None else ():
        alive = (ref() for ref in known) if is_wanted(file) else ()
        found += [function for function in alive if function is not None]
    return found


def live_objects(*kinds: type) -> list[Any]:
    """The objects of some kinds: caches, what is suspended, and files."""
    found: list[Any] = []
    listed = _listed()
    known = () if listed is None else [one for ref in listed.others if (one := ref()) is not None]
    for held in (gc.get_objects(), known):
        types = {kind for kind in set(map(type, held)) if issubclass(kind, kinds)}
        found += [one for one in held if type(one) in types]
    return found


def everything() -> list[Any]:
    """Every object that the collector knows."""
    _unlist()
    return gc.get_objects()


def collect() -> None:
    """Collect what is held in cycles, and what is listed too."""
    _unlist()
    gc.collect()


def _of_type(kind: type, held: list[Any]) -> list[Any]:
    return [one for one in held if type(one) is kind]


# -- What a program's names, frames and modules lead to ----------------------------------------------------------------


_CLOSED: Final = (ModuleType, CodeType, FrameType)
_OBJECTS: Final = 200_000
_MOST_ITEMS: Final = 10_000
"""A collection of more is data."""


def objects_of(kinds: Any, roots: Iterable[Any], among: set[int] | None = None) -> list[Any]:
    """The objects of some kinds that others, the program's modules and the loggers lead to; of the nearest 200,000.

    ``among`` are the only ones that there are, where that is known: none is looked for behind the last of them.
    """
    found: list[Any] = []
    # the names of a frame from Python 3.13 on are no dict
    given = [dict(r) if type(r).__name__ == "FrameLocalsProxy" else r for r in roots]
    waiting: deque[Any] = deque([*given, *_everywhere()])
    known = {id(o) for o in waiting}
    left = None if among is None else set(among)
    while waiting and len(known) < _OBJECTS and left != set():
        value = waiting.popleft()
        if issubclass(type(value), kinds):
            found.append(value)
            if left is not None:
                left.discard(id(value))
        if not issubclass(type(value), _CLOSED):
            names = value.__globals__ if type(value) is FunctionType else None
            held = [o for o in gc.get_referents(value) if o is not names and gc.is_tracked(o)]
            new = {id(o): o for o in held[:_MOST_ITEMS] if id(o) not in known}
            known.update(new)
            waiting.extend(new.values())
    return found


def _everywhere() -> Iterator[Any]:
    """What a program uses wherever its code stands."""
    yield from (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, sys.stdin)
    yield from (logging.root, logging.root.manager.loggerDict)
    yield from own_modules()


def own_modules() -> list[dict[str, Any]]:
    """The names of the program's own modules."""
    found: list[dict[str, Any]] = []
    for module in list(sys.modules.values()):
        names: Any = vars(module) if type(module) is ModuleType else {}
        file = names.get("__file__")
        if names.get("__name__") == "__main__" or (isinstance(file, str) and owner_of(file) is Owner.USER):
            found.append(names)
    return found
