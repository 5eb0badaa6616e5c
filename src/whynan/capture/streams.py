"""The streams and files that a program has open, pointed at nothing for a time; its warnings and variables put back."""

# pyright: strict

from __future__ import annotations

import ctypes
import gc
import io
import os
import stat
import sys
import warnings
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Generator

_BUFFERED: Final[tuple[Any, ...]] = io.BufferedWriter, io.BufferedRandom
_FILES: Final[tuple[Any, ...]] = io.FileIO, io.TextIOWrapper, io.BufferedReader, *_BUFFERED


def files() -> list[Any]:
    """The files of Python's that there are in the process, open or not: one pass over what may be millions of objects.

    By their types: what stands for something else may answer ``__class__`` by code of its own.
    """
    kinds: list[type[Any]] = [*_FILES]
    for kind in kinds:
        kinds += type.__subclasses__(kind)
    wanted = {*kinds}
    if gc.get_freeze_count():
        # what `gc.freeze` has set aside is in no list; so it is old, as what is alive was before
        gc.unfreeze()
    try:
        # not by `id`, of which Python tells the hooks of an audit each time
        return [o for o in gc.get_objects() if type(o) in wanted]
    except Exception:
        # a class of classes may have a hash of its own
        return [o for o in gc.get_objects() if issubclass(type(o), _FILES)]


@contextmanager
def descriptors(null: int, there: list[Any]) -> Generator[None]:
    """Point the descriptors of what is open for writing at nothing, and back: the offsets in the files stay.

    `there`: the files of the process.
    """
    raws = [o for o in there if issubclass(type(o), io.FileIO)]
    numbers = {n for n in (1, 2, *map(_writes_to, raws)) if n is not None and _is_open(n)}
    buffered = [o for o in there if issubclass(type(o), _BUFFERED) and _of(o, numbers)]
    texts = [o for o in there if issubclass(type(o), io.TextIOWrapper) and _of(_buffer(o), numbers)]
    _flush(texts, buffered)
    kept = {n: (os.dup(n), os.get_inheritable(n)) for n in numbers}
    try:
        for n, (_, inheritable) in kept.items():
            os.dup2(null, n, inheritable)
        yield
    finally:
        _flush(texts, buffered)
        for n, (copy, inheritable) in kept.items():
            os.dup2(copy, n, inheritable)
            os.close(copy)
        for o in buffered:
            # it counts by itself where it is, and asks when it is asked
            with suppress(OSError, ValueError):
                _type_of(o).tell(o)


def _type_of(buffered: Any) -> Any:
    """Python's own class of a buffer: a method of a subclass is the program's code."""
    return next(kind for kind in _BUFFERED if isinstance(buffered, kind))


def _flush(texts: list[Any], buffered: list[Any]) -> None:
    for text in texts:
        with suppress(OSError, ValueError):
            io.TextIOWrapper.flush(text)
    for o in buffered:
        with suppress(OSError, ValueError):
            _type_of(o).flush(o)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _writes_to(raw: io.FileIO) -> int | None:
    """The descriptor of a file or a terminal that is open for writing; pipes and sockets lead to other processes."""
    try:
        if not io.FileIO.writable(raw):
            return None
        number = io.FileIO.fileno(raw)
        return number if stat.S_ISREG(os.fstat(number).st_mode) or os.isatty(number) else None
    except (OSError, ValueError):
        return None


def _buffer(text: Any) -> Any:
    try:
        return io.TextIOWrapper.buffer.__get__(text)  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return None


def _of(buffered: Any, numbers: set[int]) -> bool:
    """Whether a buffer is that of one of these descriptors."""
    try:
        raw = _type_of(buffered).raw.__get__(buffered) if isinstance(buffered, _BUFFERED) else buffered
        return isinstance(raw, io.FileIO) and io.FileIO.fileno(raw) in numbers
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def streams() -> Generator[None]:
    """Take away what stands for stdout and stderr, but for files: those write to nothing already."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as null:
        for name, stream in zip(("stdout", "stderr"), before, strict=True):
            if stream is not None and not (type(stream) is io.TextIOWrapper and isinstance(_raw(stream), io.FileIO)):
                setattr(sys, name, null)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def _raw(text: Any) -> Any:
    return getattr(_buffer(text), "raw", None)


@contextmanager
def as_warned() -> Generator[None]:
    """What has been warned of stays so, and what a replay warns of is not: `catch_warnings` forgets the first."""
    filters, shows = list(warnings.filters), warnings.showwarning
    begun = _version()
    known = {id(r): (r, dict(r)) for r in _registries()}
    try:
        yield
    finally:
        warnings.showwarning = shows
        if list(warnings.filters) != filters:
            warnings.filters[:] = filters  # type: ignore[index]
            getattr(warnings, "_filters_mutated", lambda: None)()
        now = _version()
        for registry in _registries():
            before = known.get(id(registry), (registry, {"version": begun}))[1]
            registry.clear()
            registry.update(before)
            if before.get("version") == begun:
                registry["version"] = now


def _registries() -> list[dict[Any, Any]]:
    modules: list[Any] = list(sys.modules.values())
    found = (vars(m).get("__warningregistry__") for m in modules if isinstance(m, ModuleType))
    return [r for r in found if type(r) is dict]


def _version() -> object:
    """The number of the filters' state: a registry with another is emptied at its next warning."""
    registry: dict[Any, Any] = {}
    shows = warnings.showwarning
    warnings.showwarning = _shown
    try:
        with suppress(Warning):
            warnings.warn_explicit("", Warning, "", 0, registry=registry)
    finally:
        warnings.showwarning = shows
    return registry.get("version")


def _shown(*_args: object, **_keywords: object) -> None:
    """Show no warning."""


@contextmanager
def environment() -> Generator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        if dict(os.environ) != before:
            os.environ.clear()
            os.environ.update(before)
