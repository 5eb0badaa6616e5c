"""WN802 gradient-accumulation-overflow: two finite gradients whose sum does not fit.

What it is
    Gradients are added, in the engine or into .grad, and the sum exceeds the dtype.

Why it breaks
    The addends are finite; the sum is not.

Example
    Bad::

        for micro in batches: (loss(micro) * 2.0**16).backward()

    Good::

        for micro in batches: (loss(micro) / len(batches)).backward()

Fix
    Divide each micro-batch's loss by their number, lower the loss scale, or accumulate in float32.

When it is fine
    Where a loss scaler finds it and skips the step.

References
    -
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import all_finite, is_nan, limit, said, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if finding.phase != "accumulation" or is_nan(finding) or not all_finite(finding):
        return None
    first, second = value(finding, "self"), value(finding, "other")
    if first is None or second is None:
        return None
    return Explanation(
        f"{said(first)} + {said(second)} exceeds {limit(finding)}: the gradients are finite, their sum is "
        f"{said(finding.element.value)}",
        "Each addend is finite; what accumulates is too large for the dtype.",
        3,
    )


RULE = Rule("WN802", "gradient-accumulation-overflow", match)
