"""JSON that may be looked at: what a terminal would obey, or not show, is written as its escape."""

# pyright: strict

from __future__ import annotations

import json
import re
from typing import Final

_BEYOND_ASCII: Final = re.compile("[\x7f-\U0010ffff]+")


def visible(document: str) -> str:
    """A JSON text that says the same, in which every character is one that can be seen.

    What has a meaning in JSON is ASCII, and control characters below 32 are escaped in it already.
    """
    return document if document.isascii() and "\x7f" not in document else _BEYOND_ASCII.sub(_escaped, document)


def _escaped(found: re.Match[str]) -> str:
    text = found[0]
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)
