"""WN701 out-of-range: a finite result that does not fit its dtype.

What it is
    The operands are finite and the exact result is finite, but larger than the dtype's maximum.

Why it breaks
    Values beyond the maximum become Inf: 65504 for float16, 3.4e38 for float32 and bfloat16.

Example
    Bad::

        y = (x * x).mean(-1)      # x is float16 and 300

    Good::

        y = (x.float() * x.float()).mean(-1)

Fix
    Scale before the product, compute in float32, or use bfloat16, which has float32's range.

When it is fine
    Where a loss scaler finds it and skips the step.

References
    HAZARDS: fp16 overflow; HF #5651.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, limit, said

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "overflow" or base(finding) in ("exp", "exp2", "expm1", "sinh", "cosh"):
        return None
    parts = [
        f"{o.expression or o.name} = {said(float(o.value))}"
        for o in finding.element.operands
        if isinstance(o.value, (int, float)) and o.min is None
    ]
    ranges = [
        f"{o.expression or o.name} from {said(o.min)} to {said(o.max)}"
        for o in finding.element.operands
        if o.min is not None
    ]
    given = ", ".join([*parts, *ranges])
    fits = "; it fits bfloat16 and float32" if finding.element.dtype == "float16" else ""
    return Explanation(
        f"{base(finding)} of {given or 'its operands'} exceeds {limit(finding)} and gives {said(finding.element.value)}{fits}",
        f"All operands are finite; the result is too large for {finding.element.dtype}.",
        0,
    )


RULE = Rule("WN701", "out-of-range", match)
