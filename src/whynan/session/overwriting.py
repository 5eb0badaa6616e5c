"""Files that are written must be none of those that are read, and no two of them the same."""

# pyright: strict

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from whynan.errors import UsageError
from whynan.session.files import is_replaceable, stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
