"""A change of one file as a unified diff that ``git apply`` takes."""

# pyright: strict

from __future__ import annotations

import difflib
from typing import Final

_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def patch(path: str, before: str, after: str) -> str:
    """The unified diff of a file, its paths under ``a/`` and ``b/``; empty where nothing changes.

    Line ends are the file's own, and a last line without one is said to be so.
    """
    path = path.replace("\\", "/") if ":\\" in path[:3] else path
    name = path.lstrip("/")
    lines = difflib.unified_diff(_lines(before), _lines(after), _named(f"a/{name}"), _named(f"b/{name}"))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines as diffs have them: a carriage return alone ends none."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _named(path: str) -> str:
    """A file's name as git writes it: in quotes with what would end it, closed by a tab with a space in it."""
    if any(c in _ESCAPES or ord(c) < 32 for c in path):
        return '"' + "".join(_ESCAPES.get(c) or (c if ord(c) >= 32 else f"\\{ord(c):03o}") for c in path) + '"'
    return f"{path}\t" if " " in path else path
