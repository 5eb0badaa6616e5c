"""WN308 norm-by-hand: the root of a sum of squares that is 0.

What it is
    sqrt(sum(x²)), or the distance sqrt(sum((a - b)²)), in whatever spelling, of a vector of zeros.

Why it breaks
    The root is 0, and its derivative divides by it: Inf, times the elements, which are 0, is NaN.

Example
    Bad::

        a = torch.ones(3, requires_grad=True)
        b = torch.ones(3)
        loss = torch.sqrt(((a - b) ** 2).sum())
        loss.backward()

    Good::

        a = torch.ones(3, requires_grad=True)
        b = torch.ones(3)
        loss = torch.linalg.vector_norm(a - b)
        loss.backward()

Fix
    Use torch.linalg.vector_norm, or torch.cdist for distances.

When it is fine
    Where no gradient flows through it.

References
    pytorch #2421, #2775.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_root
from whynan.rules.intents import NORM, ROOT, ROOT_EPSILON

RULE = Rule(
    "WN308",
    "norm-by-hand",
    match_root(
        "sum(x ** 2)",
        "the sum of squares",
        "A vector of zeros, or two equal points, give a healthy 0 and an infinite slope; torch.linalg.vector_norm has the same "
        "values, and a gradient of 0 there.",
    ),
    torch="all",
    fixes=(*NORM, *ROOT, *ROOT_EPSILON),
)
