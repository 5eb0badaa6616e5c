"""WN111 standardised-constant: (x - mean) / std of elements that are all equal.

What it is
    (x - mean(x)) / std(x), in whatever spelling, of elements that are all equal.

Why it breaks
    The deviations and their root are both 0, and 0/0 has no value.

Example
    Bad::

        reward = torch.ones(4)
        advantage = (reward - reward.mean()) / reward.std()

    Good::

        reward = torch.ones(4)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)

Fix
    Add a small number to the standard deviation.

When it is fine
    Where a constant cannot occur.

References
    Advantage normalisation; AdaIN: Huang and Belongie, arXiv 1703.06868.
"""

from __future__ import annotations

from typing import Final

from whynan.rules.base import Rule
from whynan.rules.expressions import match_quotient
from whynan.rules.intents import QUOTIENT, epsilon, greatest, reformulation, scaled

_ROW: Final = f"({scaled('x')})"
_EQUAL: Final = "amax(x, dim=d, keepdim=True) == amin(x, dim=d, keepdim=True)"
_CENTRED: Final = f"({_ROW} - mean({_ROW}, dim=d, keepdim=True))"
_SPREADS: Final = (
    ("std(x, d, correction=c, keepdim=True)", f"std({_ROW}, dim=d, correction=c, keepdim=True)"),
    ("sqrt(var(x, d, correction=c, keepdim=True))", f"std({_ROW}, dim=d, correction=c, keepdim=True)"),
    ("sqrt(mean((x - mean(x, d, True)) ** 2, d, True))", f"std({_ROW}, dim=d, correction=0, keepdim=True)"),
)
"""Deviations of a row, and of the row over its largest magnitude."""


RULE = Rule(
    "WN111",
    "standardised-constant",
    match_quotient(
        "... / (deviations | var)(...) ** 0.5",
        "the standard deviation",
        "Elements that are all equal have a standard deviation of 0. Add a small number to it before the division.",
    ),
    fixes=(
        *(
            reformulation(
                "the row over its largest magnitude, and 0 where all elements are equal",
                f"(x - mean(x, d, True)) / {spread}",
                f"where({_EQUAL}, 0, {_CENTRED} / where({_EQUAL}, 1, {scaled_spread}))",
                scale=greatest("x"),
                scaled=_ROW,
                all_equal=_EQUAL,
            )
            for spread, scaled_spread in _SPREADS
        ),
        *QUOTIENT,
        epsilon(
            "a small number added to the deviation",
            "a / std(x, d, correction=c, keepdim=k)",
            "a / (std(x, d, correction=c, keepdim=k) + 1e-6)",
        ),
    ),
)
