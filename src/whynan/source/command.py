"""The code on Python's command line (``python -c``), which has no file, and of which nothing else keeps the text."""

# pyright: strict

from __future__ import annotations

import io
import sys
import textwrap
import warnings
from types import CodeType
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.source.syntax import Syntax

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE: Final = "<string>"
"""What Python calls the code of its command line, and much other code besides."""


class _Command(NamedTuple):
    syntax: Syntax
    codes: frozenset[CodeType]


_known: dict[str, _Command] = {}


def keep(text: str | None) -> None:
    """This is the code on the command line of this process; None where it runs a script or a module."""
    if text is None or FILE in _known:
        return
    if sys.version_info >= (3, 14):
        # as Python itself does since then
        text = textwrap.dedent(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # the same text gives equal code, and other text of the same name gives other code
            codes = frozenset(_within(compile(f"{text}\n", FILE, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return
    _known[FILE] = _Command(Syntax(list(io.StringIO(text, newline=None))), codes)


def syntax_of_command(code: CodeType) -> Syntax | None:
    """The syntax that a code object is of, if it was compiled of the code on the command line; else None."""
    command = _known.get(code.co_filename)
    return None if command is None or code not in command.codes else command.syntax


def line_of_command(number: int) -> str | None:
    """A line of the code on the command line, by its number from 1; None where there is none."""
    command = _known.get(FILE)
    lines = [] if command is None else command.syntax.lines
    return lines[number - 1].rstrip("\n") if 0 < number <= len(lines) else None


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)
