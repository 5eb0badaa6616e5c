"""Output files: whole or not at all, readable by their owner only, none that is also read."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from whynan.errors import UsageError

# -- Files that a run writes: whole or not at all, readable by their owner only ----------------------------------------


_DESCRIPTOR: Final = re.compile(r"/dev/(?P<stream>stdin|stdout|stderr)|(?:/dev|/proc/self)/fd/(?P<number>\d+)")
STANDARD_OUTPUT: Final = "-"
_STREAMS: Final = ("stdin", "stdout", "stderr")


def check_writable(path: str, option: str) -> None:
    """Raise ``UsageError`` where a file could not be written, before anything depends on it."""
    folder = os.path.dirname(_place(path))
    if stream(path) is None and os.path.isdir(path):
        raise UsageError(f"{option} {path} is a directory", "name a file in it")
    if not os.path.isdir(folder):
        raise UsageError(f"{option} {path}: there is no directory {folder}", "make it first, or name another")
    try:
        _try(path, folder)
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written ({error.strerror})", "name another file") from None


def write_text(path: str, text: str) -> None:
    """Write a file as a whole: a reader sees the old one or the new one; a pipe or device is written to as it is."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: str, text: str) -> None:
    """Write the document that ``--json`` asks for; raises ``UsageError`` where that fails."""
    try:
        write_text(path, f"{text}\n")
    except OSError as error:
        raise UsageError(f"--json {path} cannot be written ({error.strerror})", "name another file") from None


def write_bytes(path: str, data: bytes) -> None:
    """Write a file as `write_text` does."""
    descriptor = stream(path)
    if descriptor is not None:
        # as it stands, at the place that the program has come to
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
    elif is_replaceable(path):
        _replace(_place(path), data)
    else:
        with open(path, "wb") as file:
            file.write(data)


def stream(path: str) -> int | None:
    """The open file that a path such as ``/dev/stdout`` or ``-``, the same, stands for; None for any other."""
    if path == STANDARD_OUTPUT:
        return 1
    matched = _DESCRIPTOR.fullmatch(path)
    if matched is None or os.name != "posix":
        return None
    return _STREAMS.index(matched["stream"]) if matched["stream"] else int(matched["number"])


def is_replaceable(path: str) -> bool:
    """Whether a path names a file, or nothing yet, so that a whole file can take its place."""
    return stream(path) is None and (os.path.isfile(path) or not os.path.exists(path))


def _place(path: str) -> str:
    """Where a file really lies, or shall."""
    return os.path.abspath(path) if stream(path) is not None else os.path.realpath(path)


def _try(path: str, folder: str) -> None:
    """Raise ``OSError`` where a file cannot be written; nothing is, and nobody who listens at a pipe hears of it."""
    descriptor = stream(path)
    if descriptor is not None:
        os.write(descriptor, b"")
        return
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        made, name = tempfile.mkstemp(dir=folder, prefix=".whynan-")
        os.close(made)
        os.unlink(name)
        return
    if stat.S_ISFIFO(mode):
        _check_access(path)
        return
    with open(path, "ab"):
        pass


def _check_access(path: str) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "Permission denied")


def _replace(path: str, data: bytes) -> None:
    try:
        descriptor, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".whynan-")
    except OSError:
        if not os.path.isfile(path):
            raise
        # a file of ours in a folder of somebody else's
        _overwrite(path, data)
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        try:
            os.replace(name, path)
        except OSError:
            # it is mounted there
            _overwrite(path, data)
    finally:
        with suppress(OSError):
            os.unlink(name)


def _overwrite(path: str, data: bytes) -> None:
    # not made: only what is there already is written over
    with open(path, "r+b") as file:
        file.truncate()
        file.write(data)


# -- Files that are written must be none of those that are read, and no two of them the same ---------------------------


def check_apart(written: Sequence[tuple[str, str]], read: Iterable[tuple[str, str]]) -> None:
    """Raise ``UsageError`` where a file would be lost to another.

    Args:
        written: the options that name a file, and the files.
        read: what the run depends on: what each file is, in words, and the file.

    A file by another path, through a link or by a second name, is the same. Pipes and devices lose nothing, but for an
    open stream that two documents would be mixed in.
    """
    streams: dict[int, str] = {}
    for option, path in written:
        number = stream(path)
        if number is not None and number in streams:
            raise UsageError(f"{option} {path} is where {streams[number]} writes too", "name a file for one of them")
        if number is not None:
            streams[number] = option
    files = [(option, path) for option, path in written if is_replaceable(path)]
    known = list(read) if files else []
    for number, (option, path) in enumerate(files):
        for what, other in known:
            if _same(path, other):
                raise UsageError(f"{option} {path} would be written over {what}", "name another file")
        for earlier, other in files[:number]:
            if _same(path, other):
                raise UsageError(f"{option} {path} is the file of {earlier} too", "name another file")


def _same(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        # what is not there yet is nothing else
        return False
