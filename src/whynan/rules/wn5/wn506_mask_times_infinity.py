"""WN506 mask-times-infinity: a mask of zeros and ones times an infinity.

What it is
    (1 - mask) * -inf, or a mask times an infinite constant, to be added to scores.

Why it breaks
    The mask is 0 where nothing is to be hidden, and 0 times -Inf is NaN: what should have stayed is lost.

Example
    Bad::

        keep = torch.tensor([0.0, 1.0])
        scores = torch.ones(2) + (1 - keep) * -inf

    Good::

        keep = torch.tensor([0.0, 1.0])
        scores = torch.ones(2).masked_fill(keep == 0, -inf)
        p = scores.softmax(-1)

Fix
    Use masked_fill or where with the mask as booleans, or a finite number in the product.

When it is fine
    Never.

References
    torch.Tensor.masked_fill.
"""

from __future__ import annotations

from typing import Final

from whynan.expr import Expressions
from whynan.expr.structure import fits
from whynan.records import Finding
from whynan.records.intents import FixIntent
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import product_message, zero_times_infinity
from whynan.rules.facts import INF
from whynan.rules.intents import guard

_SIDES: Final = ("self", "other")


def match(finding: Finding) -> Explanation | None:
    at = None if finding.phase == "backward" else zero_times_infinity(finding)
    if at is None:
        return None
    if not any(_is_infinity(at[0], one) and _is_mask(at[0], other) for one, other in (_SIDES, _SIDES[::-1])):
        return None
    return Explanation(
        product_message(finding, "a mask of zeros and ones times an infinity"),
        "The mask is 0 where the score should stay as it is, and 0 times an infinity has no value. masked_fill writes the infinity "
        "only where it is wanted.",
        STRUCTURE,
    )


def _is_infinity(found: Expressions, name: str) -> bool:
    """Whether an argument is an infinite number, or a tensor of nothing else."""
    given = found.recorded_argument(found.middle, name)
    if given is None:
        return False
    low, high = (given.value, given.value) if given.shape is None else (given.min, given.max)
    return low is not None and low == high and abs(low) == INF


def _is_mask(found: Expressions, name: str) -> bool:
    """Whether an argument holds zeros and ones or booleans, or is 1 less something, either way round."""
    given, term = found.recorded_argument(found.middle, name), found.argument_term(found.middle, name)
    if given is None or term is None or given.dtype == "bool":
        return given is not None and term is not None
    less = fits("A + ...", term, where=lambda found: abs(found.numbers["A"]) == 1)
    if less and (given.min, given.max) in ((0, 0), (-1, 0)):
        return True
    return given.min == 0 and given.max == 1


_TITLE: Final = "-Inf where the mask is not 0, and 0 where it is"

RULE = Rule(
    "WN506",
    "mask-times-infinity",
    match,
    fixes=(
        FixIntent(_TITLE, "guard", "m * c", "where(m == 0, 0, c)", dtypes=("float32",)),
        guard(_TITLE, "m * c", "where(m == 0, 0, where(m == 0, 1, m) * c)"),
        guard("the most negative finite number instead of -Inf", "m * c", "m * finfo(m).min"),
    ),
)
