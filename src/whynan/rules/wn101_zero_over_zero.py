"""WN101 zero-over-zero: a quotient of two zeros.

What it is
    Numerator and denominator are both exactly 0.

Why it breaks
    IEEE 754 defines no value for 0/0: the result is NaN.

Example
    Bad::

        p = x / x.sum(-1, keepdim=True)

    Good::

        p = x / x.sum(-1, keepdim=True).clamp_min(tiny)

Fix
    Guard the denominator where it can be 0, and decide what an empty sum means.

When it is fine
    Where the quotient is masked, in forward and in backward.

References
    IEEE 754-2019, 7.2.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, is_zero, spelled

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if base(finding) not in ("div", "true_divide") or finding.phase == "optimizer":
        return None
    if not is_zero(finding, "self") or not is_zero(finding, "other"):
        return None
    names = [n for n in (spelled(finding, "self"), spelled(finding, "other")) if n not in ("the operand", "other")]
    both = f": both {' and '.join(names)} are 0 here" if len(names) == 2 and finding.phase != "backward" else ""
    return Explanation(
        f"0 / 0 is NaN{both}",
        "A quotient of two zeros has no value; the denominator must be kept away from 0 where the numerator can vanish.",
        2,
    )


RULE = Rule("WN101", "zero-over-zero", match)
