"""The post-mortem of checkpoints as text: which tensors are bad, and since which checkpoint; about twenty lines."""

# pyright: strict

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final, TextIO

from whynan.report import columns
from whynan.report.checkpoint_notes import notes
from whynan.report.checkpoint_wording import (
    bad_text,
    count_of,
    headline,
    name_of,
    order_text,
    range_of,
    remark,
    step_text,
    summary,
    type_of,
    where,
)
from whynan.report.layout import Page
from whynan.report.terminal import put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.records.checkpoint import Checkpoint, Checkpoints, Stored
    from whynan.report.layout import Piece

_UNSEEN: Final = 100
"""The width where no terminal says another."""
_WIDEST: Final = 120
_TENSORS_SHOWN: Final = 15
_AROUND: Final = 2
"""Checkpoints shown before and after those that matter."""
_STYLES: Final = {"clean": "bold green", "nonfinite": "bold red", "unreadable": "bold yellow"}
_HEADER: Final = ("type", "NaN", "Inf", "-Inf", "finite range", "")


def show(report: Checkpoints, *, show_all: bool = False, to: TextIO | None = None) -> None:
    """Print what checkpoints hold to standard output, as wide as the terminal and in its encoding.

    `to`: another stream to print to.
    """

    def told(width: int | None, color: bool, encoding: str) -> str:
        return render(report, width=width, show_all=show_all, color=color, encoding=encoding)

    put(told, to)


def render(
    report: Checkpoints,
    *,
    width: int | None = None,
    show_all: bool = False,
    color: bool = False,
    encoding: str = "utf-8",
) -> str:
    """What checkpoints hold, as text of lines at most `width` cells wide.

    Args:
        report: what is to be told.
        width: 32 at least; the terminal's, and 120 at most, where none is given.
        show_all: list every tensor, and every checkpoint.
        color: with the terminal's colour codes.
        encoding: of the output; what it cannot write is put plainer.
    """
    page = Page(width or min(shutil.get_terminal_size((_UNSEEN, 24)).columns, _WIDEST), encoding)
    page.heading(headline(report), _versions(report), _STYLES[report.verdict])
    page.blank()
    if len(report.checkpoints) > 1:
        _several(page, report, encoding, show_all=show_all)
    shown = report.checkpoints[_place(report)]
    heading = "tensor" if len(report.checkpoints) == 1 else f"tensor of {shown.name}"
    _tensors(page, shown, heading, encoding, show_all=show_all)
    page.line((report.verdict, _STYLES[report.verdict]), f": {summary(report)}")
    for note in notes(report, shown):
        page.line(f"note: {note}")
    return page.finish(color=color)


def _versions(report: Checkpoints) -> str:
    # the part behind the plus is how it was built
    return " · ".join(f"{name} {version.split('+')[0]}" for name, version in report.versions.items())


def _place(report: Checkpoints) -> int:
    """Which checkpoint is shown in full: the first bad one, else the last that could be read."""
    if report.first_bad is not None:
        return report.first_bad
    return max(place for place, held in enumerate(report.checkpoints) if held.verdict != "unreadable")


def _several(page: Page, report: Checkpoints, encoding: str, *, show_all: bool) -> None:
    """All checkpoints in a table, with the first bad one and the last good one before it."""
    order = report.order
    assert order is not None
    page.row("order", order_text(order))
    if report.last_good is not None:
        page.row("good", f"{report.checkpoints[report.last_good].name} is the last good one")
    elif report.first_bad is not None:
        page.row("good", "none before it")
    page.blank()
    places = range(len(report.checkpoints)) if show_all else _near(report)
    rows = [_row(report, place, order.key) for place in places]
    columns.put(page, ("checkpoint", order.key or "", "tensors", "bad", ""), rows, encoding)
    left_out = len(report.checkpoints) - len(rows)
    if left_out:
        page.line(f"  and {left_out:,} more; --all lists them")
    page.blank()


def _near(report: Checkpoints) -> list[int]:
    """The places of the first and last checkpoint, of those that matter, and of some around these."""
    last = len(report.checkpoints) - 1
    middle = [report.last_good, report.first_bad]
    around = [place + step for place in middle if place is not None for step in range(-_AROUND, _AROUND + 1)]
    unread = [place for place, held in enumerate(report.checkpoints) if held.verdict == "unreadable"]
    return sorted({place for place in (0, 1, *around, *unread, last - 1, last) if 0 <= place <= last})


def _row(report: Checkpoints, place: int, key: str | None) -> list[Piece]:
    held = report.checkpoints[place]
    mark = {report.last_good: "last good", report.first_bad: "first bad"}.get(place, "")
    style = "red" if held.verdict == "nonfinite" else ""
    tensors = f"{held.n_tensors:,}"
    if held.verdict == "unreadable":
        mark, tensors = "cannot be read", ""
    return [held.name, step_text(held, key), tensors, (bad_text(held), style), mark]


def _tensors(page: Page, shown: Checkpoint, heading: str, encoding: str, *, show_all: bool) -> None:
    """The bad tensors of a checkpoint, and its bad numbers, in the order of the file."""
    held = [*shown.tensors, *shown.numbers]
    bad = [stored for stored in held if stored.bad and stored.same_as is None]
    told = held if show_all else bad[:_TENSORS_SHOWN]
    if not told:
        return
    columns.put(page, (heading, *_HEADER), [_cells(stored, show_all=show_all) for stored in told], encoding)
    if len(bad) > len(told):
        page.line(f"  and {len(bad) - len(told):,} more; --all lists them")
        if groups := where(shown):
            page.row("where", ", ".join(groups))
    page.blank()


def _cells(stored: Stored, *, show_all: bool) -> Sequence[Piece]:
    style = "red" if stored.bad else ""
    counts = (stored.n_nan, stored.n_posinf, stored.n_neginf)
    bad: list[Piece] = [(count_of(count, stored.n), style) for count in counts]
    return [name_of(stored), type_of(stored), *bad, range_of(stored), remark(stored) if show_all else ""]
