"""The Python that runs whynan, as it was called."""

# pyright: strict

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONG_WITH_VALUE: Final = "--check-hash-based-pycs"
_WITH_VALUE: Final = "WX"
_CODE, _MODULE = "c", "m"


def called() -> list[str]:
    """The interpreter's name, as the user gave it where whynan was called by it, and the options that it was given."""
    named = os.path.basename(sys.argv[0]) == "__main__.py" and sys.orig_argv[:1] != [""]
    return [sys.orig_argv[0] if named else sys.executable, *command_line(sys.orig_argv[1:]).options]


class CommandLine(NamedTuple):
    """The options of an interpreter, and the code that it was given to run; None where that is a script or module."""

    options: list[str]
    code: str | None


def command_line(words: Sequence[str]) -> CommandLine:
    """A command line of Python's, without the interpreter."""
    options: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):
            options += [word, next(waiting, "")] if word == _LONG_WITH_VALUE else [word]
            continue
        place = next((i for i, letter in enumerate(word) if letter in (*_WITH_VALUE, _CODE, _MODULE)), len(word))
        letter, rest = word[place : place + 1], word[place + 1 :]
        if letter in (_CODE, _MODULE):
            # what follows belongs to what is run
            options += [word[:place]] if place > 1 else []
            return CommandLine(options, (rest or next(waiting, "")) if letter == _CODE else None)
        options += [word, next(waiting, "")] if letter and not rest else [word]
    return CommandLine(options, None)
