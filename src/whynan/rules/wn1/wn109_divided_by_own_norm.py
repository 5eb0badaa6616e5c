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

from whynan.expr import Term
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import divisors, factors, quotient_message, quotients_by_zero
from whynan.rules.intents import QUOTIENT, UNIT, epsilon


def _is_one(term: Term) -> bool:
    parts = factors(term)
    below = [base.arguments[0] for base, power in parts if power == -0.5 and base.is_call("sum")]
    squared = [inner for of in below for inner, power in factors(of) if power == 2 and len(factors(of)) == 1]
    return any(power == 1 and base in squared for base, power in parts)


def _shares(term: Term, by: frozenset[Term]) -> bool:
    """Whether what a term divides by is what the birth divides by: another norm may come later."""
    return any(power < 0 and base in by for base, power in factors(term))


def match(finding: Finding) -> Explanation | None:
    at = quotients_by_zero(finding)
    if at is None:
        return None
    by = divisors(finding)
    if not any(_is_one(term) and (number == 0 or _shares(term, by)) for number, term in enumerate(at[1])):
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
        epsilon("normalize(x) instead of x / norm(x)", "x / vector_norm(x, 2, d, True)", "normalize(x, dim=d)"),
    ),
)
