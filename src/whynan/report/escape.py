"""Text from strangers made harmless, and text made fit for what an output can write."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PLAINER: Final[dict[str, str]] = {
    "·": "-",
    "…": "...",
    "²": "^2",
    "×": "x",
    "\u2013": "-",  # en dash
    "\u2014": "-",  # em dash
    "\u2212": "-",  # minus sign
    "→": "->",
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
}


_MARKUP: Final = frozenset("\\`*_[]<>|~$!&#")
_LINKED: Final = re.compile(r"(@|#|://)(?=\w)")
_BACKTICKS: Final = re.compile("`+")

_SPARED: Final = 200
"""What is left out is longer than the words that say so."""

# Printable by Python's tables, and yet without a shape of their own: fillers, joiners, invisible vowels, variation
# selectors (about whose width terminals disagree), the empty braille pattern (Unicode, Default_Ignorable_Code_Point).
_SHAPELESS: Final = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)


def plain(text: str) -> str:
    r"""Text in which whatever cannot be seen is spelled out: ``\x1b``, ``\n``, ``\u202e``, ``\udc80``.

    Line breaks, control and formatting characters, lone surrogates, and what takes place without a shape.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _seen(character) else _spelled(character) for character in text)


def shortened(text: str, *, head: int = 800, tail: int = 200) -> str:
    """Text of a length that can be read: of a long one its beginning, its end, and how much there is between."""
    if len(text) <= head + tail + _SPARED:
        return text
    return f"{text[:head]}... ({len(text) - head - tail:,} more characters) ...{text[-tail:]}"


def encodable(text: str, encoding: str) -> str:
    """Text in which what an encoding cannot write is put plainer: ``·`` as ``-``, ``²`` as ``^2``, else escaped.

    An encoding that Python does not know is taken for ASCII.
    """
    if text.isascii() or _writes(text, encoding):
        return text
    return "".join(_degraded(character, encoding) for character in text)


def markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line: no markup, HTML, mention or reference of GitHub's."""
    escaped = "".join(f"\\{character}" if character in _MARKUP else character for character in plain(text))
    # a backslash does not keep these from being linked
    return _LINKED.sub(r"\1<!-- -->", escaped)


def code_span(text: str) -> str:
    """Text as inline code of Markdown, whatever backticks are in it."""
    shown = plain(text)
    fence = "`" * (_longest_run(shown) + 1)
    # where both ends are blank Markdown takes one away at each
    room = " " if shown.strip() and (shown[0] in "` " or shown[-1] in "` ") else ""
    return f"{fence}{room}{shown}{room}{fence}" if shown else ""


def code_block(text: str, language: str) -> str:
    """Lines as a code block of Markdown, whatever backticks are in them."""
    lines = ["\t".join(map(plain, line.rstrip("\r").split("\t"))) for line in text.rstrip("\n").split("\n")]
    fence = "`" * max(_longest_run("\n".join(lines)) + 1, 3)
    return "\n".join((f"{fence}{language}", *lines, fence))


def _longest_run(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def _seen(character: str) -> bool:
    return character.isprintable() and character not in _SHAPELESS


@lru_cache(maxsize=1024)
def _degraded(character: str, encoding: str) -> str:
    if _writes(character, encoding):
        return character
    return _PLAINER.get(character) or _spelled(character)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _writes(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return text.isascii()
    return True
