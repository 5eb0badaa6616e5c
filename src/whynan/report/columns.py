"""A table on a page: columns where they fit beside each other, else each row as a paragraph of its own."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from whynan.report.escape import encodable, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.report.layout import Page, Piece

_GAP: Final = "  "
_PLAIN_ENOUGH: Final = "type"
"""The heading of what needs none."""


def put(page: Page, header: Sequence[str], rows: Sequence[Sequence[Piece]], encoding: str) -> None:
    """Put rows under their headings, without the columns that are empty in every row.

    Where the page is too narrow, the first cell of a row stands alone, and the others below it with their headings.
    """
    cells = [[_cell(piece, encoding) for piece in row] for row in rows]
    kept = [column for column in range(len(header)) if any(row[column][0] for row in cells)]
    widths = [max(cell_len(header[c]), *(cell_len(row[c][0]) for row in cells)) for c in kept]
    if len(_GAP) * len(kept) + sum(widths) > page.width:
        page.line(_GAP, (header[0], "dim"))
        for row in cells:
            _paragraph(page, header, [(column, row[column]) for column in kept])
        return
    page.line(*_line([(header[column], "dim") for column in kept], widths))
    for row in cells:
        page.line(*_line([row[column] for column in kept], widths))


def _cell(piece: Piece, encoding: str) -> tuple[str, str]:
    # what is escaped takes more room than what was written
    text, style = (piece, "") if isinstance(piece, str) else piece
    return encodable(plain(text), encoding), style


def _line(cells: Sequence[tuple[str, str]], widths: Sequence[int]) -> list[Piece]:
    pieces: list[Piece] = []
    for (text, style), width in zip(cells, widths, strict=True):
        pieces += [_GAP, (text, style), " " * (width - cell_len(text))]
    return pieces


def _paragraph(page: Page, header: Sequence[str], cells: Sequence[tuple[int, tuple[str, str]]]) -> None:
    page.line(_GAP, cells[0][1])
    rest = [(_with_heading(header[column], text), style) for column, (text, style) in cells[1:] if text]
    page.items("", rest, "   ")


def _with_heading(heading: str, text: str) -> str:
    return text if heading in ("", _PLAIN_ENOUGH) else f"{heading} {text}"
