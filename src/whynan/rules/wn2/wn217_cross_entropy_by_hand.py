"""WN217 cross-entropy-by-hand: y log(p) + (1 - y) log(1 - p) where p is 0 or 1.

What it is
    The cross-entropy of a probability p, in whatever spelling, that is exactly 0 or 1.

Why it breaks
    One of the logarithms is -Inf; times a label of 0 it is NaN.

Example
    Bad::

        p, y = torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0])
        loss = -(y * p.log() + (1 - y) * (1 - p).log()).mean()

    Good::

        p, y = torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0])
        loss = torch.nn.functional.binary_cross_entropy(p, y)

Fix
    Use binary_cross_entropy_with_logits on what p was computed from.

When it is fine
    Where p is bounded away from 0 and 1 by more than the dtype resolves.

References
    torch.nn.functional.binary_cross_entropy_with_logits.
"""

from __future__ import annotations

import math
from typing import Final

from whynan.expr.structure import Bindings
from whynan.rules.base import Rule
from whynan.rules.expressions import match_logarithm_product
from whynan.rules.intents import LOG, LOG1P, guard, reformulation

_CROSS_ENTROPY: Final = (
    "where(m, A * log(p), B * log(1 - p))"
    " | A * log(p) + B * log(1 - p) + ..."
    " | A * u * log(p) * ... + B * ~u * log(1 - p) * ... + ..."
    " | A * (C * u + D) * log(p) * ... + B * (E * u + F) * log(1 - p) * ... + ..."
)
"""Weighted with y and 1 - y, also where both were moved towards the middle; of a logit the weights are 1 and -1."""


def _are_complements(found: Bindings) -> bool:
    """Whether one weight falls as the other grows, or both are numbers, parts of 1."""
    numbers = found.numbers
    if "m" in found.terms:
        return True
    if numbers["A"] * numbers["B"] <= 0:
        return False
    if "u" not in found.terms:
        return numbers["A"] != numbers["B"] and math.isclose(abs(numbers["A"] + numbers["B"]), 1, rel_tol=1e-6)
    return numbers.get("C", 1) * numbers.get("E", -1) < 0


RULE = Rule(
    "WN217",
    "cross-entropy-by-hand",
    match_logarithm_product(
        _CROSS_ENTROPY,
        "y log(p) + (1 - y) log(1 - p) with p = 0 or p = 1",
        "A probability that rounds to 0 or 1 makes one of the logarithms -Inf. binary_cross_entropy_with_logits takes the "
        "logits, and is finite for all of them; binary_cross_entropy bounds the logarithms.",
        where=_are_complements,
    ),
    fixes=(
        reformulation(
            "logsigmoid(x) and logsigmoid(-x) instead of the logarithms of probabilities",
            "y * log(sigmoid(x)) + (1 - y) * log(1 - sigmoid(x))",
            "y * logsigmoid(x) + (1 - y) * logsigmoid(-x)",
        ),
        guard(
            "the logarithm of a small number where p is 0 or 1",
            "y * log(p) + (1 - y) * log(1 - p)",
            "y * log(where(p == 0, finfo(p).tiny, p)) + (1 - y) * log(where(p == 1, finfo(p).eps, 1 - p))",
        ),
        *LOG,
        *LOG1P,
    ),
)
