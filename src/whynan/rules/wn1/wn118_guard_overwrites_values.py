"""WN118 guard-overwrites-values: a guard against 0 that writes its small constant over every negative value.

What it is
    x[x <= eps] = eps, torch.where(x < eps, eps, x), x.masked_fill(x < eps, eps) or x * (x >= eps) + (x < eps) * eps, where
    x has negative values that are far from 0.

Why it breaks
    The comparison means to find what is near 0 and finds everything below it. The result is finite, so nobody notices:
    of values with both signs half are replaced, and their gradients are 0.

Example
    Bad::

        x = torch.randn(64)
        x[x <= 1e-4] = 1e-4
        y = 1 / x

    Good::

        x = torch.randn(64)
        x = torch.where(x.abs() < 1e-4, torch.full_like(x, 1e-4).copysign(x), x)
        y = 1 / x

Fix
    Compare x.abs(), and keep the sign. Of what is positive by construction (a norm, a variance, a sum of squares) guard that.

When it is fine
    Where a floor is meant: then x.clamp(min=eps) says so, of which this rule says nothing.

References
    torch.copysign, torch.clamp.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.facts import damage_of, number_text, operand_before, share, value_before
from whynan.rules.intents import epsilon


def match(finding: Finding) -> Explanation | None:
    damage = damage_of(finding, "overwritten")
    before = operand_before(finding)
    if damage is None or before is None:
        return None
    eps, threshold = number_text(damage.numbers.get("eps")), number_text(damage.numbers.get("threshold"))
    name = before.expression
    here = f"{name} is {number_text(value_before(finding))}" if name else f"it was {number_text(value_before(finding))}"
    worst = number_text(damage.numbers.get("worst"))
    return Explanation(
        f"{eps} is written over {share(damage)} that are far from 0: {here}, and {worst} at worst",
        f"What is near 0 is looked for by a comparison with {threshold} that every negative number passes. Compare the "
        "magnitude and keep the sign, or guard what is positive by construction; where a floor is meant, clamp(min=...) "
        "says so.",
        STRUCTURE,
    )


RULE = Rule(
    "WN118",
    "guard-overwrites-values",
    match,
    reads=("masks",),
    modes=("trace",),
    fixes=(
        *(
            epsilon("the magnitude compared, and the sign kept", pattern, "where(abs(x) < e, where(x < 0, -e, e), x)")
            for pattern in (
                "where(x < e, e, x)",
                "where(x <= e, e, x)",
                "where(x > e, x, e)",
                "where(x >= e, x, e)",
                "masked_fill(x, x < e, e)",
                "masked_fill(x, x <= e, e)",
                "clamp(x, min=e)",
                "maximum(x, e)",
            )
        ),
    ),
)
