"""The post-mortem of checkpoints as text and as the document for machines, and its redaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO, get_args

from whynan.records.checkpoint import Checkpoint, Checkpoints, Logged, Meaning, Order, Stored, Unordered
from whynan.report import json
from whynan.report.page import Page, Piece, put_columns
from whynan.report.postmortem.wording import (
    bad_text,
    count_of,
    headline,
    name_of,
    notes,
    order_text,
    range_of,
    remark,
    step_text,
    summary,
    type_of,
    where,
)
from whynan.report.terminal import print_page
from whynan.traces.redaction import Pseudonyms, Redaction, Table, alias, by_value, dropped, kept, record

# -- The post-mortem of checkpoints as text: which tensors are bad, and since which checkpoint; about twenty lines -----


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

    print_page(told, to)


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
    page = Page(width, encoding)
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
    put_columns(page, ("checkpoint", order.key or "", "tensors", "bad", ""), rows, encoding)
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
    put_columns(page, (heading, *_HEADER), [_cells(stored, show_all=show_all) for stored in told], encoding)
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


# -- The post-mortem of checkpoints as the document for machines, and its published schema -----------------------------


SCHEMA: Final = "whynan.checkpoint/1"
SCHEMA_FILE: Final = "whynan.checkpoint-1.json"


def to_json(report: Checkpoints, *, indent: int | None = 2) -> str:
    """The document: strict JSON, in which NaN and the infinities are strings."""
    return json.to_json(report, indent=indent)


def parse_postmortem(text: str | bytes) -> Checkpoints:
    """The post-mortem of a document; raises ``UsageError`` that names the first thing that is wrong with any other."""
    return json.read_as(Checkpoints, SCHEMA, text)


def schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of the document."""
    return json.schema(SCHEMA_FILE)


def make_schema() -> dict[str, Any]:
    """The schema as the record types imply it."""
    return json.make_schema(Checkpoints, SCHEMA)


# -- The redacted post-mortem ------------------------------------------------------------------------------------------


def _stored_name(redaction: Redaction, value: str | None, holder: Any) -> str | None:
    kind = "number" if holder.layout == "number" else "tensor"
    return None if value is None else redaction.names.pseudonym(kind, value)


def _checkpoint_name(redaction: Redaction, _: Any, holder: Any) -> str:
    return redaction.names.pseudonym("checkpoint", holder.path)


def _error(redaction: Redaction, value: str | None, holder: Any) -> str | None:
    return None if value is None else f"{redaction.names.pseudonym('checkpoint', holder.path)} cannot be read"


def _literal(why: str | None) -> str | None:
    return why if why is None or why in get_args(Meaning) else "allowed"


def _why(why: str) -> str:
    return why if why in ("", *get_args(Unordered)) else "one of them stores no step"


_CHECKPOINTS: Final[Mapping[type, Table]] = {
    Stored: {
        "name": _stored_name, "file": alias("file"), "dtype": kept, "shape": kept, "layout": kept, "n": kept,
        "n_nan": kept, "n_posinf": kept, "n_neginf": kept, "n_zero": kept, "n_subnormal": kept, "bad": kept,
        "literal": by_value(_literal), "same_as": _stored_name,
        "unread": by_value(lambda why: None if why is None else "its elements cannot be read"),
    },
    Logged: {"name": alias("logged number"), "n": kept, "n_bad": kept, "first": kept, "step": kept},
    Checkpoint: {
        "name": _checkpoint_name, "path": _checkpoint_name, "form": kept, "files": alias("file"), "size": kept,
        "steps": kept, "verdict": kept, "error": _error,
        "n_tensors": kept, "n_bad": kept, "n_bad_numbers": kept, "tensors": record, "numbers": record,
        "logged": record, "unloaded": alias("class"), "notes": dropped,
    },
    Order: {"by": kept, "key": kept, "why": by_value(_why)},
    Checkpoints: {
        "schema_": dropped, "verdict": kept, "versions": kept, "order": record, "first_bad": kept, "last_good": kept,
        "unused_allows": alias("name"), "checkpoints": record,
    },
}  # fmt: skip
"""What becomes of each field."""


def redacted(report: Checkpoints) -> Checkpoints:
    """The post-mortem that lets nothing private through."""
    return Redaction(_CHECKPOINTS, Pseudonyms()).redact(report)
