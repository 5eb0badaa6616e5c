"""Unified diffs: written, read, and applied exactly where they say or not at all."""

from __future__ import annotations

import difflib
import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


# -- A unified diff: read, and applied exactly where it says or not at all ---------------------------------------------


_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NO_FILE: Final = "/dev/null"
_NO_END: Final = "\\"
"""Begins the remark that the line before it has no end."""
_REFUSED: Final = {
    "GIT binary patch": "is a binary patch",
    "Binary files ": "is a binary patch",
    "rename from ": "renames a file",
    "copy from ": "copies a file",
}
_SEVERAL: Final = "changes more than one file, or one in several parts"
_ESCAPE: Final = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPED: Final = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


class DiffError(ValueError):
    """A diff cannot be read, or does not fit; its text completes a sentence that begins with the diff's name."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines with their ends that stand from line ``start``, from 1, and those that come in their place.

    Where there are none to take away, the new ones come behind line ``start``.
    """

    start: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """A change of one file: its hunks from top to bottom, and what the diff calls the file before and after.

    The a/ and b/ of git are no part of these names.
    """

    names: tuple[str, str]
    hunks: tuple[Hunk, ...]

    def reversed(self) -> Diff:
        """The diff that takes this one back."""
        turned: list[Hunk] = []
        shift = 0
        for hunk in self.hunks:
            moved = shift + (not hunk.before) - (not hunk.after)
            turned.append(Hunk(hunk.start + moved, hunk.after, hunk.before))
            shift += len(hunk.after) - len(hunk.before)
        return replace(self, hunks=tuple(turned))


def read_diff(text: str) -> Diff:
    """The change of one file that a unified diff describes; raises ``DiffError`` as ``read_diffs``, and for several."""
    found = read_diffs(text)
    if len(found) != 1:
        raise DiffError(_SEVERAL)
    return found[0]


def read_diffs(text: str) -> list[Diff]:
    """The changes that a unified diff describes, as ``diff -u``, ``git diff`` and ``git format-patch`` write it.

    Raises ``DiffError`` for what is none, for a file in several parts, and for what makes, removes or renames one.
    """
    lines = _lines(text)
    if all(line.endswith("\r\n") for line in lines):
        # converted as a whole, headers too: what the file's line ends are, it does not say
        lines = [f"{line[:-2]}\n" for line in lines]
    place = 0
    found: list[Diff] = []
    while place < len(lines):
        line = lines[place].rstrip("\r\n")
        if refused := next((why for begin, why in _REFUSED.items() if line.startswith(begin)), None):
            raise DiffError(refused)
        if line.startswith("--- ") and place + 1 < len(lines) and lines[place + 1].startswith("+++ "):
            found.append(Diff(_names(line, lines[place + 1].rstrip("\r\n")), ()))
            place += 2
        elif found and (matched := _HUNK.match(line)):
            hunk, place = _hunk(lines, place + 1, matched)
            found[-1] = replace(found[-1], hunks=(*found[-1].hunks, hunk))
        elif line.startswith("@@"):
            raise DiffError(f"has a hunk that cannot be read, at its line {place + 1}")
        else:
            place += 1
    if not found or not all(diff.hunks for diff in found):
        raise DiffError("is no unified diff of a file")
    if len({diff.names[1] for diff in found}) < len(found):
        raise DiffError(_SEVERAL)
    return found


def apply_diff(diff: Diff, before: str) -> str:
    """A text after a change; raises ``DiffError`` where a line is not what the diff says, even if it stands elsewhere.

    A diff whose lines end in a line feed alone takes on the ends of a text all of whose lines end in CR LF.
    """
    lines, done = _lines(before), 0
    hunks = diff.hunks
    if "\n" in before and all(line.endswith("\r\n") for line in lines if line.endswith("\n")):
        hunks = tuple(_with_carriage_returns(hunk) for hunk in hunks)
    after: list[str] = []
    for number, hunk in enumerate(hunks, 1):
        begin = hunk.start - 1 if hunk.before else hunk.start
        end = begin + len(hunk.before)
        if begin < done or end > len(lines) or lines[begin:end] != list(hunk.before):
            raise DiffError(f"does not fit: at line {hunk.start} the file is not what hunk {number} takes it for")
        after += [*lines[done:begin], *hunk.after]
        done = end
    after += lines[done:]
    if any(not line.endswith("\n") for line in after[:-1]):
        raise DiffError("would leave a line without an end in the middle of the file")
    return "".join(after)


def merge(before: str, one: str, other: str) -> str | None:
    """A text with the changes of two others made of it; None where both change, or add something at, the same lines.

    What both add alike, as an import, is added once.
    """
    lines, texts = _lines(before), (_lines(one), _lines(other))
    changes: dict[tuple[int, int], list[str]] = {}
    for text in texts:
        for kind, begin, end, begins, ends in difflib.SequenceMatcher(None, lines, text, autojunk=False).get_opcodes():
            if kind != "equal" and changes.setdefault((begin, end), text[begins:ends]) != text[begins:ends]:
                return None
    spans = sorted(changes)
    if any(begin < end_before for (_, end_before), (begin, _) in itertools.pairwise(spans)):
        return None
    merged = list(lines)
    for begin, end in reversed(spans):
        merged[begin:end] = changes[begin, end]
    return "".join(merged)


def kept_lines(before: str, after: str) -> dict[int, int]:
    """The numbers, from 1, that the lines which a change leaves have behind it, by those that they had."""
    matcher = difflib.SequenceMatcher(None, _lines(before), _lines(after), autojunk=False)
    blocks = matcher.get_matching_blocks()
    return {block.a + i + 1: block.b + i + 1 for block in blocks for i in range(block.size)}


def _hunk(lines: Sequence[str], place: int, header: re.Match[str]) -> tuple[Hunk, int]:
    """The hunk that a header announces, whose lines begin at a place, and the place behind it."""
    start, n_before, _, n_after = (1 if number is None else int(number) for number in header.groups())
    marked: list[tuple[str, str]] = []
    before, after = _sides(marked)
    while len(before) < n_before or len(after) < n_after or _is_no_newline_marker(lines, place):
        mark, line = _split_marker(lines, place)
        if mark == _NO_END:
            marked[-1:] = [(m, text.removesuffix("\n")) for m, text in marked[-1:]]
        else:
            marked.append((mark, line))
        before, after = _sides(marked)
        place += 1
    if (len(before), len(after)) != (n_before, n_after):
        raise DiffError(f"has a hunk of other lines than it says, before its line {place + 1}")
    return Hunk(start, before, after), place


def _is_no_newline_marker(lines: Sequence[str], place: int) -> bool:
    return place < len(lines) and lines[place].startswith(_NO_END)


def _split_marker(lines: Sequence[str], place: int) -> tuple[str, str]:
    """What marks a line of a hunk, and the line."""
    if place < len(lines) and not lines[place].strip("\r\n"):
        # editors take away the blank that marks an empty line
        return " ", lines[place]
    if place >= len(lines) or lines[place][0] not in f" +-{_NO_END}":
        raise DiffError(f"ends in the middle of a hunk, at its line {place + 1}")
    return lines[place][0], lines[place][1:]


def _sides(marked: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of a hunk before and after."""
    return tuple(line for mark, line in marked if mark != "+"), tuple(line for mark, line in marked if mark != "-")


def _with_carriage_returns(hunk: Hunk) -> Hunk:
    lines = (*hunk.before, *hunk.after)
    if any(line.endswith("\r\n") for line in lines):
        return hunk

    def returned(side: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{line[:-1]}\r\n" if line.endswith("\n") else line for line in side)

    return replace(hunk, before=returned(hunk.before), after=returned(hunk.after))


def _names(old: str, new: str) -> tuple[str, str]:
    """What the two lines of a header call the file."""
    first, second = (_unquote_path(line[4:]) for line in (old, new))
    if _NO_FILE in (first, second):
        raise DiffError("makes or removes a file")
    if first.startswith("a/") and second.startswith("b/"):
        return first[2:], second[2:]
    return first, second


def _unquote_path(name: str) -> str:
    """A name of a header without the time behind it, and without git's quotes."""
    if not name.startswith('"'):
        return name.partition("\t")[0]
    quoted = name[1:].rpartition('"')[0].encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(lambda m: _ESCAPED.get(m[1]) or _byte(m[1]), quoted).decode("utf-8", "surrogateescape")


def _byte(escaped: bytes) -> bytes:
    return bytes([int(escaped, 8) & 0xFF]) if escaped.isdigit() else escaped


def _lines(text: str) -> list[str]:
    """Lines with their ends, which are line feeds and nothing else."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


# -- A change of one file as a unified diff that ``git apply`` takes ---------------------------------------------------


_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def patch(path: str, before: str, after: str) -> str:
    """The unified diff of a file, its paths under ``a/`` and ``b/``; empty where nothing changes.

    Line ends are the file's own, and a last line without one is said to be so.
    """
    path = path.replace("\\", "/") if ":\\" in path[:3] else path
    name = path.lstrip("/")
    lines = difflib.unified_diff(
        _text_lines(before), _text_lines(after), _quote_path(f"a/{name}"), _quote_path(f"b/{name}")
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _text_lines(text: str) -> list[str]:
    """Lines as diffs have them: a carriage return alone ends none."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _quote_path(path: str) -> str:
    """A file's name as git writes it: in quotes with what would end it, closed by a tab with a space in it."""
    if any(c in _ESCAPES or ord(c) < 32 for c in path):
        return '"' + "".join(_ESCAPES.get(c) or (c if ord(c) >= 32 else f"\\{ord(c):03o}") for c in path) + '"'
    return f"{path}\t" if " " in path else path
