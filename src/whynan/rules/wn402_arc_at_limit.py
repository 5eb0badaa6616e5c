"""WN402 arc-at-limit: acos or asin at or beyond 1.

What it is
    The operand is exactly 1 or -1 (in backward), or a rounding error beyond it (in forward).

Why it breaks
    The slope is infinite at 1 and there is no value beyond it.

Example
    Bad::

        angle = torch.acos(cosine)

    Good::

        angle = torch.acos(cosine.clamp(-1 + 1e-7, 1 - 1e-7))

Fix
    Clamp inside, or compute the angle with atan2 of cross and dot product.

When it is fine
    Where no gradient flows and the operand is inside.

References
    HAZARDS: pose losses.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, forward_base, forward_value, is_nan, said, spelled, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    names = ("acos", "asin", "atanh", "acosh")
    found = value(finding, "self")
    if base(finding) in names and found is not None and (is_nan(finding) or finding.birth == "pole"):
        return Explanation(
            f"{base(finding)}({said(found)}) is {said(finding.element.value)}: {spelled(finding, 'self')} is not inside the domain",
            "Rounding carries a cosine of parallel vectors just beyond 1.",
        )
    behind = forward_value(finding, "self")
    if finding.phase == "backward" and forward_base(finding) in names and behind is not None and abs(behind) == 1:
        return Explanation(
            f"the derivative of {forward_base(finding)} at {said(behind)} is infinite",
            "The slope of an inverse function grows without bound towards the end of its domain.",
            4,
        )
    return None


RULE = Rule("WN402", "arc-at-limit", match)
