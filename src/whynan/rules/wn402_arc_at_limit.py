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


_NAMES = ("acos", "asin", "atanh", "acosh")


def match(finding: Finding) -> Explanation | None:
    found = value(finding, "self")
    name, of = base(finding), forward_base(finding)
    if name in _NAMES and finding.phase != "backward" and found is not None:
        if is_nan(finding) and abs(found) != float("inf"):
            return Explanation(
                f"{name}({said(found)}) is NaN: {spelled(finding, 'self')} is outside its domain",
                "Rounding carries a cosine of parallel vectors just beyond 1.",
            )
        if finding.birth == "pole":
            return Explanation(
                f"{name}({said(found)}) is {said(finding.element.value)}: {spelled(finding, 'self')} is at the end of its domain",
                "The function is infinite there, and so is its derivative.",
            )
        return None
    behind = forward_value(finding, "self")
    if finding.phase == "backward" and of in _NAMES and behind is not None and abs(behind) == 1:
        return Explanation(
            f"the derivative of {of} at {said(behind)} is infinite: {spelled(finding, 'self')} is {said(behind)} here",
            "The slope of an inverse function grows without bound towards the end of its domain.",
            4,
        )
    return None


RULE = Rule("WN402", "arc-at-limit", match)
