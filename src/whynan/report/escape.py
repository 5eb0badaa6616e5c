"""Text from strangers made harmless, and text made fit for what an output can write."""

# pyright: strict

from __future__ import annotations

import unicodedata
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


def plain(text: str) -> str:
    r"""Text in which whatever cannot be seen is spelled out: ``\x1b``, ``\n``, ``\u202e``, ``\udc80``.

    Line breaks, control and formatting characters, lone surrogates, and the variation selectors, about whose width
    terminals disagree.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _seen(character) else _spelled(character) for character in text)


def encodable(text: str, encoding: str) -> str:
    """Text in which what an encoding cannot write is put plainer: ``·`` as ``-``, ``²`` as ``^2``, else escaped.

    An encoding that Python does not know is taken for ASCII.
    """
    if text.isascii() or _writes(text, encoding):
        return text
    return "".join(_degraded(character, encoding) for character in text)


@lru_cache(maxsize=1024)
def _seen(character: str) -> bool:
    # str.isprintable holds for the selectors, which are marks without a shape of their own
    return character.isprintable() and not unicodedata.name(character, "").startswith("VARIATION SELECTOR")


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
