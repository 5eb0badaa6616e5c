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
from whynan.rules.facts import base, is_nan

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if base(finding) not in ("nll_loss_forward", "nll_loss2d_forward") or not is_nan(finding):
        return None
    return Explanation(
        "the mean of the loss is 0/0: no target of this batch counts",
        "Every target is ignore_index, or has weight 0, so that the mean divides by 0.",
        2,
    )


RULE = Rule("WN602", "loss-without-targets", match)
