"""What a rule is: a named hazard that recognises a birth by its facts and explains it with their values."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.records import Finding

SECTIONS = ("What it is", "Why it breaks", "Example", "Fix", "When it is fine", "References")


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence with the values, why in two or three more, and how specific the rule is for this birth."""

    message: str
    explanation: str
    specificity: int = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """A code, a name that states the pattern, and the function that recognises it."""

    code: str
    name: str
    match: Callable[[Finding], Explanation | None]
    since: str = "0.1"
