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

from whynan.expr import Term
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import divisors, factors, quotient_message, quotients_by_zero, without_coefficient
from whynan.rules.intents import QUOTIENT, epsilon


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


def _target(term: Term, by: frozenset[Term]) -> str | None:
    """What an error is divided by, where it is one that is, and by what the birth divided."""
    if any(_is_ratio_less_one(base, by, squared=power == 2) for base, power in factors(term)):
        return "the target of the relative error"
    above = [_difference(base) for base, power in factors(term) if power > 0]
    for base, power in factors(term):
        if power >= 0 or base not in by:
            continue
        for difference in above:
            if difference and _without_sign(base) in difference:
                return "the target of the relative error"
            if difference and _magnitudes(base) == difference:
                return "the sum of |target| and |prediction|"
    return None


def _is_ratio_less_one(term: Term, by: frozenset[Term], *, squared: bool) -> bool:
    """``|1 - x / y|``, or its square."""
    inside = without_coefficient(_without_sign(term))
    if not (squared or term.is_call("abs")) or inside.kind != "sum" or len(inside.parts) != 1:
        return False
    ratio, factor = inside.parts[0]
    if factor != -inside.constant or sorted(power for _, power in factors(ratio)) != [-1, 1]:
        return False
    return any(power == -1 and base in by for base, power in factors(ratio))


def _magnitudes(term: Term) -> frozenset[Term]:
    """The x and y of ``|x| + |y|``; empty where it is no such sum."""
    if term.kind != "sum" or term.constant or len({factor for _, factor in term.parts}) != 1:
        return frozenset()
    signless = all(part.is_call("abs") for part in term.arguments)
    return frozenset(part.arguments[0] for part in term.arguments) if signless else frozenset()


def _difference(term: Term) -> frozenset[Term]:
    """The two terms of a difference, or of its magnitude; empty where it is none."""
    inside = without_coefficient(_without_sign(term))
    if inside.kind != "sum" or inside.constant or len(inside.parts) != 2:
        return frozenset()
    (first, one), (second, other) = inside.parts
    return frozenset((first, second)) if one == -other else frozenset()


def _without_sign(term: Term) -> Term:
    return term.arguments[0] if term.is_call("abs") else term


RULE = Rule(
    "WN114",
    "percentage-error",
    match,
    fixes=(
        *QUOTIENT,
        epsilon("a denominator of at least 1e-6", "a / abs(b)", "a / clamp(abs(b), min=1e-6)"),
    ),
)
