"""What a rule is: a named hazard that recognises a birth by its facts and explains it with their values."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.records import Finding

# How much of a birth an explanation covers; of several rules that recognise it, the greatest speaks.
GENERAL: Final = 10
"""What the values say, whatever the operation was for: out of range."""
OPERATION: Final = 20
"""One operation and the limits of its domain: 0/0, the logarithm of 0."""
DERIVATIVE: Final = 30
"""The derivative of one known forward operation."""
SETTING: Final = 40
"""What the operation was for: the optimizer's update, the addition into a gradient."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence with the values, why in two or three more, and how specific the rule is for this birth."""

    message: str
    explanation: str
    specificity: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A code whose first digit is the family, a name that states the pattern, and the function that recognises it."""

    code: str
    name: str
    match: Callable[[Finding], Explanation | None]
    since: str = "0.1"
