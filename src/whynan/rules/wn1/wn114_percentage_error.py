"""WN114 percentage-error: (y - p) / y where y is 0.

What it is
    |y - p| / |y|, as in a MAPE, or |y - p| / (|y| + |p|), as in a symmetric one, in whatever spelling, where a target is 0.

Why it breaks
    A relative error has no meaning at 0: the quotient is Inf, or NaN where the prediction is 0 too.

Example
    Bad::

        target = torch.tensor([0.0, 2.0])
        predicted = torch.tensor([1.0, 2.0])
        mape = ((target - predicted) / target).abs().mean()

    Good::

        target = torch.tensor([0.0, 2.0])
        predicted = torch.tensor([1.0, 2.0])
        mape = ((target - predicted).abs() / target.abs().clamp_min(1e-6)).mean()

Fix
    Clamp |y| to a small number, leave such targets out, or divide by the mean of |y|.

When it is fine
    Where a target cannot be 0.

References
    sklearn.metrics.mean_absolute_percentage_error.
"""

from __future__ import annotations

from typing import Final

from whynan.expr import NormalForm
from whynan.expr.structure import fits, operand
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import divisors, quotient_message, quotients_by_zero
from whynan.rules.intents import QUOTIENT, epsilon

_RATIO_LESS_ONE: Final = "abs(1 - x / b) ** A * ... | (1 - x / b) ** 2 * ..."
_DIFFERENCE: Final = "(A * x - A * y | abs(A * x - A * y)) ** P * ..."
_OVER_TARGET: Final = f"{_DIFFERENCE} * b ** N"
_OVER_MAGNITUDES: Final = f"{_DIFFERENCE} * (B * abs(x) + B * abs(y)) ** N"


def match(finding: Finding) -> Explanation | None:
    at = quotients_by_zero(finding)
    by = divisors(finding)
    what = None if at is None else next((found for term in at[1] if (found := _target(term, by)) is not None), None)
    if what is None:
        return None
    return Explanation(
        quotient_message(finding, what),
        "An error relative to its target is infinite where the target is 0, or 0/0 where the prediction is 0 as well. Clamp the "
        "denominator, or leave such targets out.",
        STRUCTURE,
    )


def _target(term: NormalForm, by: frozenset[NormalForm]) -> str | None:
    """What an error is divided by, where it is one that is, and by what the birth divided."""
    for b in (divisor for divisor in by if divisor.number is None):
        if fits(_RATIO_LESS_ONE, term, b=b) or fits(_OVER_TARGET, term, b=b, y=operand("abs(x)", b) or b):
            return "the target of the relative error"
        if fits("B * abs(x) + B * abs(y)", b) and fits(_OVER_MAGNITUDES, term):
            return "the sum of |target| and |prediction|"
    return None


RULE = Rule(
    "WN114",
    "percentage-error",
    match,
    fixes=(
        *QUOTIENT,
        epsilon("a denominator of at least 1e-6", "a / abs(b)", "a / clamp(abs(b), min=1e-6)"),
    ),
)
