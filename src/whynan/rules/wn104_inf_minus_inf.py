"""WN104 inf-minus-inf: infinities of opposite sign were added.

What it is
    An addition or subtraction meets Inf and -Inf, or a mask of -Inf is subtracted from itself.

Why it breaks
    IEEE 754 defines no value for Inf - Inf: the result is NaN.

Example
    Bad::

        z = x - x.max()      # every x is -inf

    Good::

        z = x - x.max().clamp_min(finfo.min)

Fix
    Use the most negative finite value of the dtype for a mask, or skip rows that are masked whole.

When it is fine
    Never.

References
    IEEE 754-2019, 7.2.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, said, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if base(finding) not in ("sub", "add", "rsub"):
        return None
    found = [value(finding, n) for n in ("self", "other")]
    if not all(v is not None and abs(v) == float("inf") for v in found):
        return None
    sign = "-" if base(finding) != "add" else "+"
    return Explanation(
        f"{said(found[0])} {sign} {said(found[1])} is NaN",
        "Two infinities cancel to no value; one of them is usually a mask that covers the whole row.",
        2,
    )


RULE = Rule("WN104", "inf-minus-inf", match)
