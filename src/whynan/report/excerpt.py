"""Source excerpts, read only where they are still what ran, and the history of a training."""

from __future__ import annotations

import hashlib
import io
import linecache
import math
import os
import tokenize
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from whynan.floats import format_value
from whynan.records import Site, Source, Step
from whynan.source import positions
from whynan.source.syntax import one_line

# -- The source lines of a site, read only where they are still those that ran -----------------------------------------


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
        if file == positions.FILE:
            return positions.line_of_command(number)
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
        return site.file != positions.FILE and bool("".join(lines).strip())
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


# -- How a training came to its bad step, from the few numbers that are kept of each step before it --------------------


_SHOWN: Final = 5
_LOOKED_AT: Final = 16
_MUCH: Final = 10.0
"""A number that is so many times what it was has grown, or jumped."""


def history_lines(steps: Sequence[Step]) -> list[str]:
    """The last steps up to the bad one, and what they tell; nothing where there are fewer than three."""
    if len(steps) < 3:
        return []
    shown = steps[-_SHOWN:]
    parts: list[str] = []
    if any(step.loss is not None for step in shown):
        parts.append(f"loss {', '.join(format_value(s.loss) for s in shown)}")
    if any(step.norm is not None for step in shown):
        parts.append(f"gradient norm {', '.join(format_value(s.norm) for s in shown)}")
    if not parts:
        return []
    first, last = shown[0].step, shown[-1].step
    led = _skipped(steps) or _growth_text(steps[:-1])
    return [f"steps {first} to {last}: {'; '.join(parts)}", *led]


def _skipped(steps: Sequence[Step]) -> list[str]:
    """That the last steps were skipped on end, and how the scale fell; nothing where fewer were than are shown."""
    made = max((number for number, step in enumerate(steps, 1) if not step.skipped), default=0)
    skipped = steps[made:]
    if len(skipped) < _SHOWN:
        return []
    scales = [step.scale for step in skipped if step.scale is not None]
    fall = f": its scale was {format_value(scales[0])}, and is {format_value(scales[-1])}" if scales else ""
    return [f"steps {skipped[0].step} to {skipped[-1].step} were skipped by the loss scaler{fall}"]


def _growth_text(before: Sequence[Step]) -> list[str]:
    """Whether the steps before the bad one led to it."""
    for name, of in (("gradient norm", [s.norm for s in before]), ("loss", [s.loss for s in before])):
        growth = _growth(of)
        if growth is not None:
            times, rising = growth
            led, what = ("grew", "it diverges") if rising else ("jumped", "the bad number has begun before")
            return [f"the {name} {led} {format_value(times)}-fold in the steps before: {what}"]
    return ["the steps before were like the others: it came at once, with this batch or these weights"]


def _growth(of: Sequence[float | None]) -> tuple[float, bool] | None:
    """How many times what it was a number is at last, and whether it rose step by step; None where not much."""
    values = [abs(v) for v in of[-_LOOKED_AT:] if v is not None and math.isfinite(v) and v != 0]
    if len(values) < 4:
        growth = values[-1] / values[0] if len(values) > 1 else 0.0
        return (growth, values == sorted(values)) if growth >= _MUCH else None
    growth = values[-1] / median(values[: len(values) // 2])
    rising = sum(a < b for a, b in pairwise(values)) * 4 >= (len(values) - 1) * 3
    return (growth, rising) if growth >= _MUCH else None
