"""A rule's page: the sections of its module's docstring, and its two examples, which are programs that run."""

# pyright: strict

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import Final

SECTIONS: Final = ("What it is", "Why it breaks", "Example", "Fix", "When it is fine", "References")
"""The headings of every page, in this order."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the first line of the docstring, the text under each heading, and the code of both examples.

    The examples assume ``torch``, ``nn``, ``F`` (``torch.nn.functional``), ``np`` (NumPy) and ``inf``.
    """

    summary: str
    sections: dict[str, str]
    bad: str
    good: str


def read(doc: str) -> Page:
    """The page that a docstring holds; raises ``ValueError`` if a section or an example is missing."""
    lines = inspect.cleandoc(doc).splitlines()
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines[1:]:
        if line in SECTIONS:
            current = found[line] = []
        else:
            current.append(line)
    if tuple(found) != SECTIONS:
        raise ValueError(f"a page has the sections {', '.join(SECTIONS)}; this one has {', '.join(found)}")
    sections = {name: _block(text) for name, text in found.items()}
    bad, separator, good = sections["Example"].partition("\nGood::\n")
    if not separator or not bad.startswith("Bad::\n"):
        raise ValueError("an example is 'Bad::' with its code, then 'Good::' with its code")
    return Page(lines[0], sections, _block(bad.removeprefix("Bad::\n").splitlines()), _block(good.splitlines()))


def _block(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n")
