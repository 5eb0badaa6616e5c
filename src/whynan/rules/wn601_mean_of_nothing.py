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
from whynan.rules.facts import base, count_of, operand, spelled, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if name not in ("mean", "var", "std", "var_mean", "std_mean", "nanmean") or finding.birth != "invalid":
        return None
    source = operand(finding, "self", "input")
    count = count_of(finding, "self", "input")
    if source is None or source.shape is None or count is None:
        return None
    shape = list(source.shape)
    if count == 0:
        return Explanation(
            f"{name} over no element divides by a count of 0: {spelled(finding, 'self')} has shape {shape}",
            "The batch, the mask or the group is empty.",
        )
    correction = value(finding, "correction")
    correction = 1.0 if correction is None else correction
    if name in ("mean", "nanmean") or count > correction:
        return None
    return Explanation(
        f"{name} over {count} element with correction {correction:g} divides by 0: {spelled(finding, 'self')} has shape {shape}",
        "The variance of a single value has no unbiased estimate; unbiased=False (correction=0) gives 0.",
    )


RULE = Rule("WN601", "mean-of-nothing", match)
