"""WN119 inf-over-inf: a quotient of two infinities has no value.

What it is
    Data with an Inf in it, divided by a sum, a norm or a range of itself, or by anything else that is Inf there.

Why it breaks
    The infinity makes both sides of the quotient infinite, and Inf / Inf is NaN.

Example
    Bad::

        weights = torch.tensor([torch.inf, 1.0])
        share = weights / weights.sum()

    Good::

        weights = torch.tensor([torch.inf, 1.0])
        kept = weights.clamp(max=1e6)
        share = kept / kept.sum()

Fix
    Find where the infinity comes in, and clamp it, or leave the element out, before the division.

When it is fine
    Nowhere: a quotient that grows towards a limit reaches it only in another form, as exp(x) / (exp(x) + 1) does in sigmoid(x).

References
    IEEE 754-2019, 7.2.
"""

from __future__ import annotations

from typing import Final

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import INF, base, is_in_library_step, is_nan, number_text, value
from whynan.rules.wording import derivative, operand_source

_OPERANDS: Final = {"div": ("self", "other"), "true_divide": ("self", "other"), "addcdiv": ("tensor1", "tensor2")}


def match(finding: Finding) -> Explanation | None:
    names = _OPERANDS.get(base(finding))
    if names is None or is_in_library_step(finding) or not is_nan(finding):
        return None
    above, below = (value(finding, name) for name in names)
    if above is None or below is None or {abs(above), abs(below)} != {INF}:
        return None
    known = [
        f"{text} is {number_text(value(finding, name))}" for name in names if (text := operand_source(finding, name))
    ]
    here = f": {' and '.join(known)} here" if known else ""
    return Explanation(
        f"{number_text(above)} / {number_text(below)} is NaN{derivative(finding) or here}",
        "A quotient of two infinities has no value. An infinite element makes the sum, the norm and the range of its row "
        "infinite as well: look at where it comes in.",
        OPERATION,
    )


RULE = Rule("WN119", "inf-over-inf", match)
