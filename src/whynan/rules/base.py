"""What a rule is: a named hazard that recognises a birth by its facts and explains it with their values."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.records import Finding
    from whynan.records.intents import FixIntent

Reading = Literal["ranges", "parameters", "masks", "bounds", "gradients"]
"""What a rule of silent damage has to be read for it, beside what bad numbers ask for themselves.

``ranges``: how large the finite values of a tensor are. ``parameters``: them, before and after an optimizer's step.
``masks``: what an operation writes over what. ``bounds``: the constants of sums and clamps. ``gradients``: those that a
step consumes.
"""
Mode = Literal["trace", "watch"]
"""Where every operation is looked at, or only what a step consumes."""

# How much of a birth an explanation covers; of several rules that recognise it, the greatest speaks.
OUTCOME: Final = 5
"""What became of it, whatever it was: that no loss scale cures it."""
GENERAL: Final = 10
"""What the values say, whatever the operation was for: out of range."""
OPERATION: Final = 20
"""One operation and the limits of its domain: 0/0, the logarithm of 0."""
DERIVATIVE: Final = 30
"""The derivative of one known forward operation."""
SETTING: Final = 40
"""What the operation was for: the optimizer's update, the addition into a gradient."""
SELECTION: Final = 45
"""What became of the result: a mask left it out, and its derivative is computed all the same."""
STRUCTURE: Final = 50
"""The expression that the operation is a part of, however it is spelled: the logarithm of a softmax."""
GUARD: Final = 60
"""A guard that the expression was given and that does not hold: a small number that is 0 in the dtype."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence with the values, why in two or three more, and how specific the rule is for this birth."""

    message: str
    explanation: str
    specificity: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A code whose first digit is the family, a name that states the pattern, and the function that recognises it.

    ``since`` is the first version that had the rule, of whynan or of the distribution that brings it. ``also`` names
    further families that it belongs to. ``torch`` says in which versions of PyTorch it bites, where that matters.
    A rule of silent damage says what it ``reads``, and in which ``modes`` it is live; it is asked only of findings with
    ``damage``, and every other rule only of births. ``fixes`` is what would mend it, best first.
    """

    code: str
    name: str
    match: Callable[[Finding], Explanation | None]
    since: str = "0.1"
    also: tuple[str, ...] = ()
    torch: str | None = None
    reads: tuple[Reading, ...] = ()
    modes: tuple[Mode, ...] = ()
    fixes: tuple[FixIntent, ...] = ()
