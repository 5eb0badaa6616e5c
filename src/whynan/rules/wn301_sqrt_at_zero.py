"""WN301 sqrt-at-zero: the derivative of a square root at zero.

What it is
    The forward value of sqrt(0) is 0; its backward divides by 2*sqrt(0).

Why it breaks
    The slope of sqrt is infinite at 0: Inf, and NaN at the next product with 0.

Example
    Bad::

        loss = torch.sqrt(((a - b) ** 2).sum())

    Good::

        loss = torch.linalg.vector_norm(a - b)

Fix
    Use vector_norm (subgradient 0), or add a small number inside the root.

When it is fine
    Where no gradient flows through it.

References
    pytorch #6394, #2421.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, forward_base, forward_value, is_zero, spelled

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if finding.phase != "backward" or forward_base(finding) != "sqrt" or forward_value(finding, "self") != 0:
        return None
    if base(finding) != "div" or not is_zero(finding, "other"):
        return None
    return Explanation(
        f"the derivative of sqrt at 0 is 1/(2*0): {spelled(finding, 'self')} is 0 here",
        "The forward value is a healthy 0; its gradient divides by twice the root: Inf, or NaN where the gradient that "
        "comes in is 0.",
        4,
    )


RULE = Rule("WN301", "sqrt-at-zero", match)
