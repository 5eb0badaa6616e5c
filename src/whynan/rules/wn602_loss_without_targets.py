"""WN602 loss-without-targets: a mean loss in which every target is ignored.

What it is
    nll_loss or cross_entropy with reduction mean, where every target is ignore_index or has weight 0.

Why it breaks
    The sum of the weights is 0: 0/0 is NaN. The gradients may still be finite.

Example
    Bad::

        loss = F.cross_entropy(logits, labels)      # every label is -100

    Good::

        loss = F.cross_entropy(logits, labels, reduction="sum") / (labels != -100).sum().clamp_min(1)

Fix
    Skip such a batch, or divide a sum by the count, at least 1.

When it is fine
    Never as a training loss.

References
    pytorch #70348, #75181.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import all_finite, base, is_nan, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if not is_nan(finding) or not all_finite(finding):
        return None
    if name in ("nll_loss_forward", "nll_loss2d_forward") and value(finding, "reduction") == 1:
        return Explanation(
            "the mean of the loss is 0/0: no target of this batch counts",
            "Every target is ignore_index, or has weight 0, so that the mean divides by 0.",
            2,
        )
    if name in ("nll_loss_backward", "nll_loss2d_backward") and value(finding, "total_weight") == 0:
        return Explanation(
            "the gradient of the mean divides by the weight of all targets, which is 0: no target of this batch counts",
            "Every target is ignore_index, or has weight 0, so that the mean divides by 0.",
            2,
        )
    return None


RULE = Rule("WN602", "loss-without-targets", match)
