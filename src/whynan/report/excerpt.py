"""The source lines of a site, read only where they are still those that ran."""

# pyright: strict

from __future__ import annotations

import hashlib
import io
import linecache
import os
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.source import command
from whynan.source.syntax import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whynan.records import Site, Source

    LineOf = Callable[[str, int], str | None]
    """A function from file and line number to the text of the line, or None where it is not known."""

_MOST_LINES: Final = 200
_MOST_SHOWN: Final = 5
_MOST_BYTES: Final = 64 << 20


class Excerpt(NamedTuple):
    """One line of source, and the range of its characters (from 0, end exclusive) to be marked; None: nothing."""

    text: str
    marked: tuple[int, int] | None


class Sources:
    """The source files of a run: a file whose hash is not the run's any more has no lines."""

    def __init__(self, recorded: Iterable[Source]) -> None:
        self._hashes = {source.file: source.sha256 for source in recorded}
        self._files: dict[str, list[str]] = {}

    def line(self, file: str, number: int) -> str | None:
        """A line by its number from 1, without its end."""
        if file == command.FILE:
            return command.line_of_command(number)
        lines = self._files.get(file)
        if lines is None:
            known = self._hashes.get(file)
            lines = self._files[file] = _cached(file) if known is None else _read(file, known)
        return lines[number - 1].rstrip("\r\n") if 0 < number <= len(lines) else None


def _read(file: str, sha256: str) -> list[str]:
    """The lines of a file that has this hash, else none."""
    try:
        if not _readable(Path(file)):
            return []
        with Path(file).open("rb") as opened:
            content = opened.read(_MOST_BYTES)
        if hashlib.sha256(content).hexdigest() != sha256.lower():
            return []
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return io.TextIOWrapper(io.BytesIO(content), encoding).readlines()
    except (OSError, SyntaxError, ValueError, LookupError):
        return []


def _cached(file: str) -> list[str]:
    """The lines of a notebook's cell, or of a file that this process has read before, as it ran it.

    Of a file whose hash is not known nothing else says that it is the run's: a report could name any.
    """
    try:
        names = (file, os.path.abspath(file))
        for name in names:
            linecache.checkcache(name)
        held = [name for name in names if name in linecache.cache]
        return linecache.getlines(held[0]) if held else []
    except (OSError, ValueError):
        return []


def _readable(path: Path) -> bool:
    """Whether this is a file of a fair size: to read the pipe or device that a report may name could never end.

    Files that the system makes up as they are read have none.
    """
    return path.is_file() and 0 < path.stat().st_size <= _MOST_BYTES


def excerpt(site: Site, line_of: LineOf) -> tuple[Excerpt, ...]:
    """The lines of a site with its columns marked; its expression alone where the lines are not to be had."""
    lines = _lines(site, line_of)
    if lines and _agrees(site, lines):
        return _abridged(_marked(site, lines))
    return (Excerpt(site.code, None),) if site.code else ()


def _abridged(lines: tuple[Excerpt, ...]) -> tuple[Excerpt, ...]:
    """Beginning and end of a long expression, and how much is between them."""
    if len(lines) <= _MOST_SHOWN:
        return lines
    head, tail = lines[: _MOST_SHOWN - 3], lines[-2:]
    return (*head, Excerpt(f"... {len(lines) - len(head) - len(tail)} more lines", None), *tail)


def _lines(site: Site, line_of: LineOf) -> list[str]:
    last = site.line if site.end_line is None else site.end_line
    if not site.line <= last < site.line + _MOST_LINES:
        return []
    lines = [line_of(site.file, number) for number in range(site.line, last + 1)]
    return [] if None in lines else [line for line in lines if line is not None]


def _agrees(site: Site, lines: list[str]) -> bool:
    """Whether the lines hold the expression of a site, where it says they do."""
    if site.code is None:
        # much code is called what that of the command line is called
        return site.file != command.FILE and bool("".join(lines).strip())
    if site.column is None or site.end_column is None:
        return lines[0].strip() == site.code.strip()
    return one_line("\n".join(_cut(site.column, site.end_column, lines))) == site.code


def _cut(column: int, end_column: int, lines: list[str]) -> list[str]:
    rows = list(lines)
    rows[-1] = rows[-1][: max(end_column - 1, 0)]
    rows[0] = rows[0][max(column - 1, 0) :]
    return rows


def _marked(site: Site, lines: list[str]) -> tuple[Excerpt, ...]:
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    found: list[Excerpt] = []
    for number, line in enumerate(lines):
        start = site.column - 1 if number == 0 and site.column is not None else _indent(line)
        last = number == len(lines) - 1
        end = site.end_column - 1 if last and site.end_column is not None else len(line.rstrip())
        marked = None if site.column is None or end <= start else (max(start - margin, 0), end - margin)
        found.append(Excerpt(line[margin:].rstrip(), marked))
    return tuple(found)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
