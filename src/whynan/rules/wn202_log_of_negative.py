"""WN202 log-of-negative: the logarithm of a negative number.

What it is
    log meets a value below 0 (log1p below -1).

Why it breaks
    There is no real logarithm of a negative number: NaN.

Example
    Bad::

        y = torch.log(predicted + 1)

    Good::

        y = torch.log(predicted.clamp_min(0) + 1)

Fix
    Find out why the operand is negative (a rounding error, an unbounded output) and bound it there.

When it is fine
    Never.

References
    -
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, said, spelled, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    found = value(finding, "self")
    edge = -1.0 if name == "log1p" else 0.0
    if name not in ("log", "log2", "log10", "log1p") or found is None or not found < edge:
        return None
    return Explanation(
        f"{name}({said(found)}) is NaN: {spelled(finding, 'self')} is below {said(edge)} here",
        "The logarithm is defined for positive numbers only.",
    )


RULE = Rule("WN202", "log-of-negative", match)
