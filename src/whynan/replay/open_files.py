"""Open files and other state of the process: pointed at nothing during a replay, and put back."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import stat
import sys
import warnings
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType
from typing import Any, Final

from whynan.replay.live_objects import is_hidden, live_objects, objects_of, own_modules

# -- The open files of the program: for a time what is written goes nowhere, and what is read is gone back in ----------


_READERS: Final[Any] = (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom)
_FILES: Final[Any] = (*_READERS, io.BufferedWriter, io.FileIO)


def open_files(roots: Iterable[Any]) -> list[Any]:
    """The files that some objects, the program's modules and the loggers lead to."""
    return objects_of(_FILES, roots, _all_files())


def _all_files() -> set[int] | None:
    """Which objects of the process are files; None where it has some that are not listed."""
    return None if is_hidden() else set(map(id, live_objects(*_FILES)))


@contextmanager
def unpatched_modules() -> Generator[None]:
    """Have what the modules held that the program's own ones name, which it may have patched."""
    named = [value for names in own_modules() for value in list(names.values()) if type(value) is ModuleType]
    held = {id(module): (module, dict(vars(module))) for module in named}
    try:
        yield
    finally:
        for module, before in held.values():
            now = vars(module)
            for name in [n for n, value in before.items() if now.get(n) is not value]:
                now[name] = before[name]


@contextmanager
def discarded_writes(files: list[Any], null: int) -> Generator[None]:
    """Point the descriptors of what is open for writing at nothing, and back: the offsets in the files stay."""
    kept: dict[int, tuple[int, bool]] = {}
    # where the program has no stream of a number, that of nothing may have it
    for n in {n for n in (1, 2, *map(_descriptor, files)) if n not in (None, null)}:
        with suppress(OSError):
            kept[n] = os.dup(n), os.get_inheritable(n)
    writers = [f for f in files if _number(f) in kept]
    _flush(writers)
    try:
        for n, (_, inheritable) in kept.items():
            os.dup2(null, n, inheritable)
        yield
    finally:
        try:
            _flush(writers)
        finally:
            for n, (copy, inheritable) in kept.items():
                os.dup2(copy, n, inheritable)
                os.close(copy)
        for file in writers:
            # a buffer counts by itself where it is, and asks when it is asked
            position(file)


@contextmanager
def same_positions(files: list[Any]) -> Generator[list[Any]]:
    """Go back in the files that are read; gives those in which one cannot, or that are written to as well."""
    inner = {id(o) for f in files if issubclass(type(f), io.TextIOWrapper) for o in gc.get_referents(f)}
    read = [f for f in files if id(f) not in inner and is_read(f)]
    places = [(f, None if _kind(f).writable(f) else position(f)) for f in read]
    try:
        yield [f for f, at in places if at is None]
    finally:
        for file, at in places:
            go_to(file, at)


def is_read(value: Any) -> bool:
    """Whether a value is a file that is open for reading."""
    try:
        return issubclass(type(value), _READERS) and _kind(value).readable(value)
    except (OSError, ValueError):
        return False


def position(file: Any) -> int | None:
    """Where one is in a file; None where that cannot be said: in a pipe, or where a loop is going over its lines."""
    try:
        return _kind(file).tell(file)
    except (OSError, ValueError):
        return None


def go_to(file: Any, at: int | None) -> None:
    """Be at a place of a file."""
    with suppress(OSError, ValueError):
        if at is not None and position(file) != at:
            _kind(file).seek(file, at)


def _kind(file: Any) -> Any:
    """Python's own class of a file: a method of a subclass is the program's code."""
    return next(kind for kind in _FILES if issubclass(type(file), kind))


def _number(file: Any) -> int | None:
    try:
        return _kind(file).fileno(file)
    except Exception:
        # closed, detached, or over what is no file
        return None


def _descriptor(file: Any) -> int | None:
    """The descriptor of a file or a terminal that is open for writing; pipes and sockets lead to other processes."""
    number = _number(file)
    if number is None or not _kind(file).writable(file):
        return None
    return number if stat.S_ISREG(os.fstat(number).st_mode) or os.isatty(number) else None


def _flush(files: list[Any]) -> None:
    for file in files:
        with suppress(OSError, ValueError):
            _kind(file).flush(file)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


# -- State of the process that is put back: attributes, warning filters, environment variables, the profile function


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Generator[None]:
    """Have an attribute be another value."""
    before: Any = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def profiled(function: Any) -> Generator[None]:
    """Have a profile function; the program's own is back afterwards."""
    before: Any = sys.getprofile()
    sys.setprofile(function)
    try:
        yield
    finally:
        # one that is written in C installs itself
        enable = getattr(before, "enable", None)
        sys.setprofile(None if enable else before)
        if enable:
            enable()


@contextmanager
def warning_filters() -> Generator[None]:
    """Put the filters of warnings back; their version stays, for by another one Python forgets what it has shown."""
    filters = list(warnings.filters)
    names = [n for n in ("_filters_mutated", "_filters_mutated_lock_held") if n in vars(warnings)]
    try:
        with ExitStack() as entered:
            for name in ("filters", "showwarning"):
                entered.enter_context(replaced(warnings, name, vars(warnings)[name]))
            for name in names:
                entered.enter_context(replaced(warnings, name, lambda: None))
            yield
    finally:
        warnings.filters[:] = filters  # type: ignore[index]


@contextmanager
def environment() -> Generator[None]:
    """The environment variables are put back."""
    before = dict(os.environ)
    try:
        yield
    finally:
        if dict(os.environ) != before:
            os.environ.clear()
            os.environ.update(before)
