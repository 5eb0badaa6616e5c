"""WN401 atan2-near-origin: the derivative of atan2 beside the origin.

What it is
    Both arguments of atan2 are so small that the sum of their squares is below 2.94e-39.

Why it breaks
    The derivative divides by y**2 + x**2; the reciprocal of a number below 2.94e-39 exceeds float32, and 0 *
    Inf is NaN.

Example
    Bad::

        phase = torch.atan2(imag, real)

    Good::

        phase = torch.atan2(imag, torch.where(imag.abs() + real.abs() < 1e-15, 1.0, real))

Fix
    Give a vector that has no direction a harmless one before atan2; adding an epsilon to one argument moves the
    pole.

When it is fine
    An exact origin: torch 2.13 masks it and gives gradient 0.

References
    torch 2.13 atan2_backward.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, forward_base, forward_value, largest, limit, said

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if finding.phase != "backward" or forward_base(finding) != "atan2" or finding.birth == "invalid":
        return None
    y, x = forward_value(finding, "self"), forward_value(finding, "other")
    if y is None or x is None or base(finding) not in ("reciprocal", "div"):
        return None
    square = y * y + x * x
    if square > 1 / largest(finding.element.dtype):
        return None
    return Explanation(
        f"the derivative divides by y*y + x*x: at y = {said(y)}, x = {said(x)} that is {said(square)}, "
        f"and its reciprocal exceeds {limit(finding)}",
        "Beside the origin the direction of a vector turns infinitely fast; its derivative does not fit the dtype.",
        4,
    )


RULE = Rule("WN401", "atan2-near-origin", match)
