"""WN111 standardised-constant: (x - mean) / std of elements that are all equal.

What it is
    (x - mean(x)) / std(x), in whatever spelling, of elements that are all equal.

Why it breaks
    The deviations and their root are both 0, and 0/0 has no value.

Example
    Bad::

        reward = torch.ones(4)
        advantage = (reward - reward.mean()) / reward.std()

    Good::

        reward = torch.ones(4)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)

Fix
    Add a small number to the standard deviation.

When it is fine
    Where a constant cannot occur.

References
    Advantage normalisation; AdaIN: Huang and Belongie, arXiv 1703.06868.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.structure import at_the_quotient, factors, quotients_by_zero

if TYPE_CHECKING:
    from whynan.analysis.algebra import Term
    from whynan.records import Finding


def _is_one(term: Term) -> bool:
    return any(base.is_call("deviations", "var") and power == -0.5 for base, power in factors(term))


def match(finding: Finding) -> Explanation | None:
    at = quotients_by_zero(finding)
    if at is None or not any(_is_one(term) for term in at[1]):
        return None
    return Explanation(
        at_the_quotient(finding, "the standard deviation"),
        "Elements that are all equal have a standard deviation of 0. Add a small number to it before the division.",
        STRUCTURE,
    )


RULE = Rule("WN111", "standardised-constant", match)
