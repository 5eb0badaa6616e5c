"""WN103 zero-times-inf: zero multiplied by an infinity.

What it is
    One factor is 0 and the other Inf.

Why it breaks
    IEEE 754 defines no value for 0 * Inf: the result is NaN. A mask made by multiplication does not remove an
    Inf.

Example
    Bad::

        y = mask * torch.log(x)

    Good::

        y = torch.where(mask, torch.log(torch.where(mask, x, 1)), 0)

Fix
    Select with where, and give the hidden branch a harmless operand (double where).

When it is fine
    Never as a mask.

References
    pytorch #52248; TensorFlow #38349.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, said, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if base(finding) not in ("mul", "addcmul"):
        return None
    names = ("self", "other") if base(finding) == "mul" else ("tensor1", "tensor2")
    found = [value(finding, n) for n in names]
    if None in found or 0 not in found or not any(abs(v) == float("inf") for v in found if v is not None):
        return None
    return Explanation(
        f"{said(found[0])} * {said(found[1])} is NaN",
        "Multiplying by 0 does not remove an infinity; in a backward pass the 0 is often the gradient of a masked place.",
        2,
    )


RULE = Rule("WN103", "zero-times-inf", match)
