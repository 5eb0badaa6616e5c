"""WN302 sqrt-of-negative: the square root of a negative number.

What it is
    sqrt or rsqrt meets a value below 0, often -0.0000001 from rounding.

Why it breaks
    There is no real root of a negative number: NaN.

Example
    Bad::

        std = torch.sqrt((x * x).mean() - x.mean() ** 2)

    Good::

        std = x.std(correction=0)

Fix
    Use var/std, or clamp_min(0) before the root.

When it is fine
    Where it is selected away, in backward too (double where).

References
    -
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, forward_base, forward_value, said, spelled, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    found = value(finding, "self")
    if base(finding) in ("sqrt", "rsqrt") and finding.phase != "backward" and found is not None and found < 0:
        return Explanation(
            f"{base(finding)}({said(found)}) is NaN: {spelled(finding, 'self')} is negative here",
            "A difference of two nearly equal numbers, or an operand that nothing bounds, is the usual source.",
        )
    behind = forward_value(finding, "self")
    if finding.phase == "backward" and forward_base(finding) in ("sqrt", "rsqrt") and behind is not None and behind < 0:
        return Explanation(
            f"{forward_base(finding)}({said(behind)}) was NaN in the forward, and its derivative is computed from that: "
            f"{spelled(finding, 'self')} is negative here",
            "The derivative divides by the forward's own result. Where the bad value was selected away afterwards, the "
            "gradient that comes in is 0, and 0 / NaN is NaN.",
            4,
        )
    return None


RULE = Rule("WN302", "sqrt-of-negative", match)
