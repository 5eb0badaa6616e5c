"""WN203 exp-overflow: an exponential beyond the range of its dtype.

What it is
    exp, exp2, expm1, sinh or cosh of a large operand.

Why it breaks
    exp(x) exceeds the float32 maximum above x = 88.7, the float16 maximum above 11.09.

Example
    Bad::

        w = torch.exp(score) / torch.exp(score).sum()

    Good::

        w = torch.softmax(score, 0)

Fix
    Work with the logarithm (softmax, logsumexp, softplus), or bound the exponent.

When it is fine
    Where the Inf is meant, as in 1/(1+exp(-x)) read forward only.

References
    HAZARDS: log-sum-exp, PPO ratios.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, is_nan, limit, said, spelled, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    found = value(finding, "self")
    if name not in ("exp", "exp2", "expm1", "sinh", "cosh") or found is None or is_nan(finding):
        return None
    if abs(found) == float("inf"):
        return None
    return Explanation(
        f"{name}({said(found)}) exceeds {limit(finding)} and gives {said(finding.element.value)}",
        f"{spelled(finding, 'self')} is too large for {finding.element.dtype}; the logarithm of the result would fit.",
    )


RULE = Rule("WN203", "exp-overflow", match)
