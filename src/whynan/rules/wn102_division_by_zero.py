"""WN102 division-by-zero: a finite value divided by zero.

What it is
    The denominator (or the operand of reciprocal, rsqrt, a negative power) is exactly 0.

Why it breaks
    1/x has a pole at 0: the result is Inf.

Example
    Bad::

        y = x / x.norm()

    Good::

        y = F.normalize(x)

Fix
    Keep the denominator away from 0 with a clamp of the right size for the dtype, or select a safe value first
    (double where).

When it is fine
    Where the infinite quotient is itself meant and masked later, in backward too.

References
    IEEE 754-2019, 7.3.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, is_zero, said, spelled, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if finding.phase == "optimizer" or finding.birth != "pole":
        return None
    result = said(finding.element.value)
    if name in ("div", "true_divide") and is_zero(finding, "other"):
        where = "" if finding.phase == "backward" else f": {spelled(finding, 'other')} is 0 here"
        text = f"{said(value(finding, 'self'))} / 0 is {result}{where}"
    elif name in ("reciprocal", "rsqrt") and is_zero(finding, "self"):
        where = "" if finding.phase == "backward" else f": {spelled(finding, 'self')} is 0 here"
        text = f"{'1 / 0' if name == 'reciprocal' else 'rsqrt(0) = 1 / sqrt(0)'} is {result}{where}"
    elif name == "pow" and is_zero(finding, "self"):
        text = f"0 to the power {said(value(finding, 'exponent'))} is {result}"
    else:
        return None
    return Explanation(text, "A quotient has a pole where its denominator is 0, and the gradient has one too.", 1)


RULE = Rule("WN102", "division-by-zero", match)
