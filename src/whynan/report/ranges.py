"""The table of every value of a model: its range, its counters, and how near it comes to the limit of its type."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TextIO

from whynan.floats import format_value
from whynan.records import Range
from whynan.report.escape import plain
from whynan.report.page import Page, put_columns
from whynan.report.terminal import print_page
from whynan.report.wording import array_of

_HEADER: Final = ("node", "value", "op", "type", "min", "max", "NaN", "Inf", "zero", "subnormal", "of the limit")
_FIELDS: Final = (
    "event", "node", "value", "op", "dtype", "shape", "n", "finite_min", "finite_max", "n_nan", "n_posinf", "n_neginf",
    "n_zero", "n_subnormal", "headroom", "provider", "file", "line", "module",
)  # fmt: skip


def select_rows(rows: Sequence[Range], *, sort: str, ops: Sequence[str], names: Sequence[str]) -> tuple[Range, ...]:
    """The rows of some operators and names, sorted: by name and operator upwards, by numbers the greatest first.

    The least ``min`` comes first. What has no such number stands behind all that have one.
    """
    kept = [row for row in rows if (not ops or row.op in ops) and (not names or _matches_name(row, names))]
    key = _KEYS.get(sort)
    return tuple(kept if key is None else sorted(kept, key=key))


def _matches_name(row: Range, names: Sequence[str]) -> bool:
    own = [name for name in (row.node, row.value) if name]
    return any(fnmatchcase(name, pattern) for name in own for pattern in names)


def _most(number: float | None) -> float:
    return math.inf if number is None else -number


_KEYS: Final[dict[str, Callable[[Range], Any]]] = {
    "name": lambda row: row.node or row.value or "",
    "op": lambda row: row.op,
    "min": lambda row: math.inf if row.finite_min is None else row.finite_min,
    "max": lambda row: _most(row.finite_max),
    "nan": lambda row: -row.n_nan,
    "inf": lambda row: -(row.n_posinf + row.n_neginf),
    "zero": lambda row: -row.n_zero,
    "subnormal": lambda row: -row.n_subnormal,
    "headroom": lambda row: _most(row.headroom),
}


def to_csv(rows: Sequence[Range]) -> str:
    """The rows as CSV, numbers to the last digit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_FIELDS)
    for row in rows:
        site = row.site
        more = {
            "shape": "x".join(str(size) for size in row.shape),
            "file": None if site is None else site.file,
            "line": None if site is None else site.line,
            "module": None if site is None else site.module,
        }
        writer.writerow(_harmless(more[f] if f in more else getattr(row, f)) for f in _FIELDS)
    return out.getvalue()


def _harmless(cell: object) -> object:
    """A text in which all can be seen; one that a spreadsheet would take for a formula begins with an apostrophe."""
    if not isinstance(cell, str):
        return cell
    shown = plain(cell)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def show(rows: Sequence[Range], *, to: TextIO | None = None) -> None:
    """Print the table to standard output, as wide as the terminal; `to`: to another stream."""
    print_page(lambda width, color, encoding: render(rows, width=width, color=color, encoding=encoding), to)


def render(rows: Sequence[Range], *, width: int | None = None, color: bool = False, encoding: str = "utf-8") -> str:
    """The table as text; wider than a terminal where no width is given."""
    page = Page(width or 160, encoding)
    if rows:
        put_columns(page, _HEADER, [_cells(row) for row in rows], encoding)
    else:
        page.line("no value fits")
    page.blank()
    return page.finish(color=color)


def _cells(row: Range) -> list[str | tuple[str, str]]:
    bad = "bold red"
    inf = row.n_posinf + row.n_neginf
    return [
        row.node or "",
        "" if row.value == row.node else row.value or "",
        row.op,
        array_of(row.dtype, row.shape),
        "" if row.finite_min is None else format_value(row.finite_min),
        "" if row.finite_max is None else format_value(row.finite_max),
        (f"{row.n_nan:,}", bad) if row.n_nan else "",
        (f"{inf:,}", bad) if inf else "",
        f"{row.n_zero:,}" if row.n_zero else "",
        f"{row.n_subnormal:,}" if row.n_subnormal else "",
        _share(row.headroom),
    ]


def _share(headroom: float | None) -> str:
    """How much of the range of its type a value takes: ``0.05%``; nothing where that is next to nothing."""
    if headroom is None or headroom < 1e-6:
        return ""
    return f"{headroom:.2%}" if headroom >= 1e-4 else f"{headroom:.1e}"
