"""WN109 divided-by-own-norm: a vector of zeros, divided by its norm.

What it is
    x / ‖x‖, in whatever spelling, of a vector of zeros.

Why it breaks
    The norm is 0, and 0/0 has no value.

Example
    Bad::

        x = torch.zeros(2, 3)
        unit = x / x.norm(dim=-1, keepdim=True)

    Good::

        x = torch.zeros(2, 3)
        unit = torch.nn.functional.normalize(x, dim=-1)

Fix
    Use torch.nn.functional.normalize; in float16 give it an eps of 1e-4 or more.

When it is fine
    Where the quotient is masked, in forward and in backward.

References
    torch.nn.functional.normalize; pytorch #184575.
"""

from __future__ import annotations

from typing import Final

from whynan.expr.structure import fits
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import divisors, quotient_message, quotients_by_zero
from whynan.rules.intents import QUOTIENT, UNIT, epsilon, guard

_UNIT: Final = "x * ... / sum(x ** 2) ** 0.5"
_STANDARDISED: Final = "... / deviations(...) ** 0.5"
"""The same of deviations from the mean, which is another hazard's."""


def match(finding: Finding) -> Explanation | None:
    at = quotients_by_zero(finding)
    if at is None:
        return None
    birth, *later = at[1]
    # what is divided by is what the birth divides by: another norm may come later, or have come before
    by = divisors(finding)
    shared = [term for term in later if any(fits("y ** N * ...", term, y=part) for part in by)]
    if not any(fits("sum(x ** 2)", part) for part in by) or not fits(_UNIT, birth, *shared):
        return None
    if fits(_STANDARDISED, birth):
        return None
    return Explanation(
        quotient_message(finding, "the norm of the vector"),
        "A vector of zeros has no direction. torch.nn.functional.normalize divides by the norm or by its eps, whichever is "
        "greater.",
        STRUCTURE,
    )


RULE = Rule(
    "WN109",
    "divided-by-own-norm",
    match,
    fixes=(
        *UNIT,
        *QUOTIENT,
        guard("an operand of 1 where it is 0", "rsqrt(b)", "rsqrt(where(b == 0, 1, b))"),
        epsilon("a small number inside the root", "rsqrt(b)", "rsqrt(b + 1e-6)"),
        epsilon("normalize(x) instead of x / norm(x)", "x / vector_norm(x, 2, d, True)", "normalize(x, dim=d)"),
    ),
)
