"""WN501 softmax-all-masked: softmax over a row of nothing but -Inf.

What it is
    Every place of a row is masked with -Inf.

Why it breaks
    softmax subtracts the maximum, -Inf - (-Inf), which is NaN.

Example
    Bad::

        p = scores.masked_fill(mask, -inf).softmax(-1)      # a row of padding only

    Good::

        p = scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)

Fix
    Use the dtype's most negative finite value, unmask one place, or skip the row.

When it is fine
    Where the row is dropped before a loss, in backward too.

References
    pytorch #41508, PR #131060.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, operand

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if base(finding) not in ("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax"):
        return None
    row = operand(finding, "self")
    if row is None or row.max is None or row.min is None:
        return None
    if float(row.max) == float("-inf"):
        return Explanation(
            "the whole row is -Inf: softmax subtracts its maximum, and -Inf - (-Inf) is NaN",
            "Every place of this row is masked, often a sequence of padding only or a causal and a padding mask together.",
            3,
        )
    if float(row.max) == float("inf"):
        return Explanation(
            "the row holds Inf: softmax subtracts its maximum, and Inf - Inf is NaN",
            "An infinite score came in; look where it was made.",
            2,
        )
    return None


RULE = Rule("WN501", "softmax-all-masked", match)
