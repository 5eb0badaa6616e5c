"""WN707 number-beyond-dtype: a number in the source that is Inf in the dtype it is used in.

What it is
    x * 5.4e39, where x is float32; torch.tensor(-1e9, dtype=torch.float16).

Why it breaks
    A Python number takes the dtype of the tensor that it meets. What lies beyond the largest finite number of that
    dtype is Inf there: 0 * 5.4e39 is NaN, and 1e-20 * 5.4e39 is Inf although 5.4e19 would fit.

Example
    Bad::

        x = torch.tensor([0.0, 1e-20])
        energy = x * 5.4e39

    Good::

        x = torch.tensor([0.0, 1e-20])
        energy = (x.double() * 5.4e39).float()

Fix
    Compute with the number in float64, or multiply in two steps.

When it is fine
    Never: an infinity that is meant is written as one.

References
    torch.result_type.
"""

from __future__ import annotations

from typing import Final

from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import base, is_onnx, maximum, number_text, overflows, product, result
from whynan.rules.intents import setting
from whynan.rules.wording import derivative, exact_attempt

_WRITTEN: Final = "lift_fresh"
"""What makes a tensor of a number that Python hands in."""
_HALVES: Final = frozenset(("float16", "bfloat16"))
"""What is computed in float32, and rounded then (pytorch 2.13)."""


def match(finding: Finding) -> Explanation | None:
    if base(finding) == _WRITTEN and finding.birth == "overflow":
        return _of_a_number(finding)
    if base(finding) not in TORCH.having("WN707") or finding.birth not in ("overflow", "invalid") or is_onnx(finding):
        return None
    dtype = "float32" if finding.element.dtype in _HALVES else finding.element.dtype
    number = _overflowing(finding, dtype)
    if number is None:
        return None
    attempt = exact_attempt(finding)
    fits = attempt is not None and not overflows(attempt.result, finding.element.dtype)
    told = f": {attempt.words} would fit" if attempt is not None and fits else ""
    return Explanation(
        f"{number_text(number)} is {number_text(float('inf') if number > 0 else float('-inf'))} in {dtype}, and {base(finding)} with it gives "
        f"{result(finding)}{derivative(finding)}{told}",
        f"The largest finite number of {dtype} is {number_text(maximum(dtype))}. A number that the program writes is rounded to "
        "the dtype of the tensor before anything is computed with it.",
        OPERATION,
    )


def _of_a_number(finding: Finding) -> Explanation | None:
    """A tensor that the program makes of a number."""
    dtype = finding.element.dtype
    number = _overflowing(finding, dtype)
    if number is None:
        return None
    return Explanation(
        f"{number_text(number)} is {result(finding)} in {dtype}, and the tensor that the program makes of it holds that",
        f"The largest finite number of {dtype} is {number_text(maximum(dtype))}. What the program writes is rounded to the dtype of "
        "the tensor, without a warning.",
        OPERATION,
    )


def _overflowing(finding: Finding, dtype: str) -> float | None:
    """An operand that is one number, and finite only where it was written."""
    for found in finding.element.operands:
        lone = found.dtype is None or (found.shape == () and found.dtype == "float64")
        if lone and isinstance(found.value, float) and overflows(product(found.value), dtype):
            return None if found.value in (float("inf"), float("-inf")) else found.value
    return None


RULE = Rule(
    "WN707",
    "number-beyond-dtype",
    match,
    torch="all",
    fixes=(setting("float64 for this operation, or the number's factors one after the other"),),
)
