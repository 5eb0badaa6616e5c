"""WN801 optimizer-eps-zero: an optimizer divided by zero.

What it is
    The denominator of an update (Adam, RMSprop, Adagrad) is 0: the gradient was 0 and eps is 0, or vanishes in
    the dtype.

Why it breaks
    Adam divides m by sqrt(v) + eps; with a gradient of 0 and eps 0 that is 0/0. 1e-8 is 0 in float16.

Example
    Bad::

        torch.optim.Adam(params, eps=0)

    Good::

        torch.optim.Adam(params, eps=1e-8)

Fix
    Give eps a value that the dtype of the state can hold, or keep float32 master weights.

When it is fine
    Never.

References
    pytorch #147437; Kingma and Ba, arXiv 1412.6980.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, said, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if finding.phase != "optimizer":
        return None
    for names in (("tensor2", "tensor1"), ("other", "self")):
        denominator = value(finding, names[0])
        if denominator == 0:
            numerator = said(value(finding, names[1]))
            return Explanation(
                f"the update divides {numerator} by 0 and makes the parameter {said(finding.element.value)}",
                "The gradient of this element is 0, and eps is 0 or too small for the dtype to keep the denominator away from 0.",
                3,
            )
    if base(finding).startswith("_fused"):
        return Explanation(
            f"the fused update {base(finding)} makes the parameter {said(finding.element.value)} from finite state",
            "A denominator of 0 (a zero gradient with eps 0, or an eps that vanishes in the dtype) is the usual reason.",
            1,
        )
    return None


RULE = Rule("WN801", "optimizer-eps-zero", match)
