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

from whynan.rules.arithmetic import attempted
from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import all_finite, base, given, limit, said, value
from whynan.rules.numbers import beyond, overflows, wider

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if finding.birth != "overflow" or name in ("exp", "exp2", "expm1", "sinh", "cosh", "_ctc_loss"):
        return None
    if not all_finite(finding):
        return None
    dtype, result = finding.element.dtype, said(finding.element.value)
    attempt = attempted(finding)
    if attempt is not None and overflows(attempt.result, dtype):
        fits = wider(attempt.result, dtype)
        text = f"{attempt.words} {beyond(attempt.result, dtype, shown=False)}" + (f"; {fits}" if fits else "")
    elif name in ("_to_copy", "copy_", "copy"):
        text = f"{said(value(finding, 'self', 'src'))}, cast to {dtype}, exceeds {limit(finding)} and gives {result}"
    else:
        text = f"{name} of {given(finding)} gives {result}: the result exceeds {limit(finding)}"
    return Explanation(text, f"All operands are finite; the result is too large for {dtype}.", 0)


RULE = Rule("WN701", "out-of-range", match)
