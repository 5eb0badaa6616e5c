"""A page of wrapped, labelled lines and tables; whatever is put on it is escaped first."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from whynan.report.escape import encodable, plain, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from whynan.report.excerpt import Excerpt


# -- A page of labelled, wrapped lines; whatever is put on it is escaped first -----------------------------------------


Piece = str | tuple[str, str]
"""Text, or text and its style."""

NARROWEST: Final = 32
WIDEST: Final = 120
"""Sentences longer than this are hard to read."""
_UNSEEN: Final = 100
"""The width where no terminal says another."""
_CONTENT: Final = 11
_TAB: Final = "    "
_LONGEST: Final = 1200
_BEFORE: Final = 200
"""Of a longer line of source so many characters before what is marked in it are shown."""


class Page:
    """Lines of at most `width` cells, with labels at the left and content beside them.

    The width is the terminal's, and 120 at most, where none is given. Text may come from anywhere: control characters
    in it are shown, markup in it is text, and what the encoding of the output cannot write is put plainer.
    """

    def __init__(self, width: int | None, encoding: str = "utf-8") -> None:
        self.width = max(width or min(shutil.get_terminal_size((_UNSEEN, 24)).columns, WIDEST), NARROWEST)
        self._encoding = encoding
        self._lines: list[Text] = []
        # wrapping asks for a console, and takes nothing from it: the width is given
        self._console = Console(file=io.StringIO(), width=self.width)

    def blank(self) -> None:
        """An empty line."""
        self._lines.append(Text())

    def heading(self, left: str, right: str, style: str) -> None:
        """A line with text at both ends, or two lines where they do not fit beside each other."""
        first, second = self._text((left, style)), self._text((right, "dim"))
        gap = self.width - first.cell_len - second.cell_len
        if right and gap >= 2:
            self._lines.append(first.append(" " * gap).append_text(second))
            return
        self._wrapped(first, 0)
        if right:
            self._wrapped(second, 0)

    def line(self, *pieces: Piece) -> None:
        """A paragraph over the whole width."""
        self._wrapped(self._text(*pieces), 0)

    def row(self, label: str, *pieces: Piece) -> None:
        """A paragraph beside its label; beside nothing where the label is empty."""
        self._wrapped(self._text(*pieces), _CONTENT, label)

    def entry(self, label: str, *pieces: Piece, at: int) -> None:
        """A paragraph that begins `at` so many cells, beside its label if there is one, which fits there."""
        self._wrapped(self._text(*pieces), at, label)

    def verbatim(self, line: str, *, at: int, style: str = "") -> None:
        """A line of code as it stands, broken only where the page ends."""
        cells = [(_TAB if character == "\t" else self._spell(character), False) for character in shortened(line)]
        for row in _rows(cells, self.width - at):
            self._add(at, "".join(shown for shown, _ in row), style)

    def items(self, label: str, items: Iterable[Piece], gap: str) -> None:
        """Items beside a label, as many on a line as fit; none is broken that fits on a line of its own."""
        room = self.width - _CONTENT
        spacing = self._text(gap)
        packed: list[Text] = []
        for item in (self._text(item) for item in items):
            if packed and packed[-1].cell_len + spacing.cell_len + item.cell_len <= room:
                packed[-1].append_text(spacing).append_text(item)
            else:
                packed.append(item)
        for number, text in enumerate(packed):
            self._wrapped(text, _CONTENT, "" if number else label)

    def code(self, line: Excerpt, note: str = "") -> None:
        """A line of source, carets under what is marked in it, and a note behind them."""
        indent = _CONTENT + (4 if self.width >= 60 else 2)
        text, (start, end) = _clip_line(line)
        cells = [
            (_TAB if character == "\t" else self._spell(character), start <= number < end)
            for number, character in enumerate(text)
        ]
        last = ""
        for row in _rows(cells, self.width - indent):
            self._add(indent, "".join(shown for shown, _ in row))
            last = "".join(("^" if marked else " ") * cell_len(shown) for shown, marked in row).rstrip()
            if last:
                self._add(indent, last, "red")
        spelled = self._spell(note)
        if not spelled:
            return
        if last and indent + len(last) + 2 + cell_len(spelled) <= self.width:
            self._lines[-1].append("  ").append(spelled, "dim")
        else:
            self._wrapped(self._text((note, "dim")), indent)

    def finish(self, *, color: bool) -> str:
        """The page as text, with the terminal's colour codes if asked for."""
        if not color:
            return "\n".join(line.plain.rstrip() for line in self._lines)
        out = io.StringIO()
        console = Console(
            file=out, width=self.width, color_system="standard", force_terminal=True, no_color=False,
            legacy_windows=False, highlight=False, markup=False, emoji=False,
        )  # fmt: skip
        for line in self._lines:
            line.rstrip()
            console.print(line, soft_wrap=True)
        return out.getvalue().removesuffix("\n")

    def _spell(self, text: str) -> str:
        return encodable(shortened(plain(text)), self._encoding)

    def _text(self, *pieces: Piece) -> Text:
        line = Text()
        for piece in pieces:
            text, style = (piece, "") if isinstance(piece, str) else piece
            line.append(self._spell(text), style or None)
        return line

    def _add(self, indent: int, spelled: str, style: str = "") -> None:
        self._lines.append(Text(" " * indent).append(spelled, style or None))

    def _wrapped(self, text: Text, indent: int, label: str = "") -> None:
        for number, line in enumerate(text.wrap(self._console, self.width - indent, overflow="fold")):
            lead = Text("  ").append(label.ljust(indent - 2), "cyan") if label and not number else Text(" " * indent)
            self._lines.append(lead.append_text(line))


def _clip_line(line: Excerpt) -> tuple[str, tuple[int, int]]:
    """A line of source and what is marked in it; of a very long one only what stands around the mark."""
    start, end = line.marked or (0, 0)
    if len(line.text) <= _LONGEST:
        return line.text, (start, end)
    first = max(start - _BEFORE, 0)
    lead, rest = "... " if first else "", line.text[first:]
    text = f"{lead}{rest[:_LONGEST]} ..." if len(rest) > _LONGEST else lead + rest
    moved = len(lead) - first
    return text, (start + moved, min(end + moved, len(lead) + _LONGEST))


def _rows(cells: list[tuple[str, bool]], room: int) -> list[list[tuple[str, bool]]]:
    """Cells of a line of source, broken where the room ends."""
    rows: list[list[tuple[str, bool]]] = [[]]
    used = 0
    for cell in cells:
        size = cell_len(cell[0])
        if used + size > room:
            rows.append([])
            used = 0
        rows[-1].append(cell)
        used += size
    return rows


# -- A table on a page: columns where they fit beside each other, else each row as a paragraph of its own --------------


_GAP: Final = "  "
_PLAIN_ENOUGH: Final = "type"
"""The heading of what needs none."""


def put_columns(page: Page, header: Sequence[str], rows: Sequence[Sequence[Piece]], encoding: str) -> None:
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
