"""Files that a run writes: whole or not at all, readable by their owner only."""

# pyright: strict

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

from whynan.errors import UsageError


def check_writable(path: str, option: str) -> None:
    """Raise ``UsageError`` where a file could not be written, before anything depends on it."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise UsageError(f"{option} {path} is a directory", "name a file in it")
    if not os.path.isdir(folder):
        raise UsageError(f"{option} {path}: there is no directory {folder}", "make it first, or name another")
    try:
        if os.path.exists(path):
            with open(path, "ab"):
                pass
        if _replaced(path):
            descriptor, name = tempfile.mkstemp(dir=folder, prefix=".whynan-")
            os.close(descriptor)
            os.unlink(name)
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written ({error.strerror})", "name another file") from None


def write_text(path: str, text: str) -> None:
    """Write a file as a whole: a reader sees the old one or the new one; a pipe or device is written to as it is."""
    data = text.encode("utf-8", "backslashreplace")
    if not _replaced(path):
        with open(path, "wb") as file:
            file.write(data)
        return
    target = os.path.realpath(path)
    descriptor, name = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".whynan-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _replaced(path: str) -> bool:
    return os.path.isfile(path) or not os.path.exists(path)
