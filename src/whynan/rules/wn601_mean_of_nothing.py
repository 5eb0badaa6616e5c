"""WN601 mean-of-nothing: a mean or variance of no element, or a variance of one.

What it is
    mean of an empty tensor, or std and var with one element and correction 1.

Why it breaks
    The sum is divided by a count of 0: 0/0 is NaN.

Example
    Bad::

        adv = (r - r.mean()) / r.std()      # a batch of one

    Good::

        adv = (r - r.mean()) / (r.std(correction=0) + eps)

Fix
    Skip the batch, or use correction=0.

When it is fine
    Never.

References
    pytorch #70348.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, operand

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    source = operand(finding, "self", "input")
    if name not in ("mean", "var", "std", "var_mean", "std_mean", "nanmean") or source is None or source.shape is None:
        return None
    count = 1
    for size in source.shape:
        count *= size
    if count > 1 and finding.element.total == 1:
        return None
    many = "no element" if count == 0 else "a single element"
    return Explanation(
        f"{name} over {many} divides by a count of 0 and gives NaN",
        "The batch, the mask or the group is empty, or has one member and a variance with correction 1.",
    )


RULE = Rule("WN601", "mean-of-nothing", match)
