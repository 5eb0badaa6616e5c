"""WN310 deviation-by-hand: the root of a variance that is 0.

What it is
    sqrt(var(x)), in whatever spelling, of elements that are all equal.

Why it breaks
    The root is 0, and its derivative divides by it: Inf, times the deviations from the mean, which are 0, is NaN.

Example
    Bad::

        x = torch.ones(2, 4, requires_grad=True)
        spread = x.var(-1).sqrt()
        spread.sum().backward()

    Good::

        x = torch.ones(2, 4, requires_grad=True)
        spread = (x.var(-1) + 1e-12).sqrt()
        spread.sum().backward()

Fix
    Use torch.std, or add a small number inside the root.

When it is fine
    Where no gradient flows through it.

References
    torch.std.
"""

from __future__ import annotations

import math
from typing import Final

from whynan.rules.base import Rule
from whynan.rules.expressions import match_root
from whynan.rules.intents import ROOT, ROOT_EPSILON, greatest, reformulation, scaled, times_greatest

_ROW: Final = scaled("x")
_DEVIATIONS: Final = (
    ("sqrt(var(x, d, correction=c, keepdim=k))", "c"),
    ("sqrt(mean((x - mean(x, d, True)) ** 2, d, k))", "0"),
    ("sqrt(mean(x**2, d, k) - mean(x, d, k) ** 2)", "0"),
)
"""Deviations by hand, and the correction of std that they have."""


RULE = Rule(
    "WN310",
    "deviation-by-hand",
    match_root(
        "deviations(x) | var(...) | P * sum(x ** 2) - Q * sum(x) ** 2",
        "the variance",
        "Elements that are all equal have a variance of 0, where the slope of the root is infinite: Inf, times the deviations, "
        "which are 0, is NaN. torch.std has a gradient of 0 there.",
        where=lambda found: math.isclose(found.numbers.get("Q", 1), found.numbers.get("P", 1) ** 2, rel_tol=1e-6),
    ),
    fixes=(
        *(
            reformulation(f"std(x) instead of {pattern}", pattern, f"std(x, dim=d, correction={correction}, keepdim=k)")
            for pattern, correction in _DEVIATIONS
        ),
        *(
            reformulation(
                "std of the row over its largest magnitude, times that",
                pattern,
                times_greatest(f"std({_ROW}, dim=d, correction={correction}, keepdim=k)", "x"),
                scale=greatest("x"),
            )
            for pattern, correction in _DEVIATIONS
        ),
        *ROOT,
        *ROOT_EPSILON,
    ),
)
