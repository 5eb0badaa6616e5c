"""WN112 min-max-of-constant: (x - min) / (max - min) of elements that are all equal.

What it is
    (x - min(x)) / (max(x) - min(x)), in whatever spelling, of elements that are all equal.

Why it breaks
    Both differences are 0, and 0/0 has no value.

Example
    Bad::

        image = torch.full((2, 3), 0.5)
        scaled = (image - image.min()) / (image.max() - image.min())

    Good::

        image = torch.full((2, 3), 0.5)
        scaled = (image - image.min()) / (image.max() - image.min()).clamp_min(1e-6)

Fix
    Clamp the range to a small number.

When it is fine
    Where a constant cannot occur.

References
    Min-max scaling.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_quotient
from whynan.rules.intents import QUOTIENT, epsilon

RULE = Rule(
    "WN112",
    "min-max-of-constant",
    match_quotient(
        "... / (A * max(x) - A * min(x))",
        "the range, max - min,",
        "Elements that are all equal have no range. Keep it away from 0 before the division.",
    ),
    fixes=(
        *QUOTIENT,
        epsilon("a range of at least 1e-6", "(x - a) / (b - a)", "(x - a) / clamp(b - a, min=1e-6)"),
    ),
)
