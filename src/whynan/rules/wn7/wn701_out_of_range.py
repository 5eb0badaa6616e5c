"""WN701 out-of-range: a finite result that does not fit its dtype.

What it is
    The operands are finite and the exact result is finite, but it, or a value on the way to it, is larger than
    the dtype's maximum.

Why it breaks
    Values beyond the maximum become Inf: 65504 for float16, 3.4e38 for float32 and bfloat16.

Example
    Bad::

        x = torch.full((4,), 300.0, dtype=torch.float16)
        energy = (x * x).mean()

    Good::

        x = torch.full((4,), 300.0, dtype=torch.float16)
        energy = (x.float() * x.float()).mean()

Fix
    Scale before the product, compute in float32, or use bfloat16, which has float32's range.

When it is fine
    Where a loss scaler finds it and skips the step.

References
    IEEE 754-2019, 7.4.
"""

from __future__ import annotations

import math

from whynan.ops.names import bases
from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.rules.base import GENERAL, Explanation, Rule
from whynan.rules.facts import (
    all_finite,
    base,
    excess,
    is_nan,
    is_onnx,
    limit,
    maximum,
    operand,
    overflows,
    result,
    row,
    wider_formats_text,
)
from whynan.rules.intents import MAGNITUDE, MEAN_ROOT, NORM, ROOT_OF_PRODUCT, SOFTMAX, reformulation, setting
from whynan.rules.wording import Attempt, derivative, exact_attempt, growth_text, operands_text, operator_text

# The result itself is out of range, or a partial sum or product of the same kind.
_BATCHES = frozenset("native_batch_norm native_layer_norm native_group_norm".split())
_NORMS = frozenset("native_layer_norm native_group_norm".split())


def match(finding: Finding) -> Explanation | None:
    if not all_finite(finding) or finding.birth not in ("overflow", "invalid"):
        return None
    if is_nan(finding):
        return _both_signs(finding)
    attempt, dtype = exact_attempt(finding), finding.element.dtype
    if attempt is not None and overflows(attempt.result, dtype):
        text = _exact(attempt, dtype)
    elif base(finding) in TORCH.having("WN701-partial"):
        text = (
            f"{operator_text(finding)} of {operands_text(finding)} exceeds {limit(finding)} and gives {result(finding)}"
        )
    elif base(finding) in bases("WN701-inside"):
        text = f"{operator_text(finding)} of {operands_text(finding)}, or a value on the way to it, exceeds {limit(finding)} and gives {result(finding)}"
    else:
        return None
    return Explanation(
        f"{text}{derivative(finding)}",
        f"All operands are finite; what is made of them is too large for {dtype}.{growth_text(finding)}",
        GENERAL,
    )


def _exact(attempt: Attempt, dtype: str) -> str:
    fits = wider_formats_text(attempt.result, dtype)
    return f"{attempt.words} {excess(attempt.result, dtype, shown=False)}" + (f" ({fits})" if fits else "")


def _spreads(finding: Finding) -> bool:
    """Whether the values of a row are so large that their sum, or their squares, may leave the range of the dtype."""
    span, most = row(finding, "input"), maximum(finding.element.dtype)
    if span is None or most is None:
        return False
    found = operand(finding, "input")
    count = 1 if found is None or found.shape is None else math.prod(found.shape)
    largest = max(map(abs, span))
    return largest * count > most or largest > math.sqrt(most / max(1, count))


def _both_signs(finding: Finding) -> Explanation | None:
    """A sum of finite products that overflows towards both sides."""
    if base(finding) in _NORMS and is_onnx(finding):
        return Explanation(
            f"{operator_text(finding)} of {operands_text(finding)} is NaN: the squares behind the variance exceed {limit(finding)}, and what is "
            "divided by the root of Inf has no value any more",
            f"All operands are finite; their squares are too large for {finding.element.dtype}.",
            GENERAL,
        )
    if base(finding) in _BATCHES and _spreads(finding):
        return Explanation(
            f"{operator_text(finding)} of {operands_text(finding)} is NaN: the sums behind its mean and its variance exceed {limit(finding)}, and what is "
            "subtracted from Inf or divided by it has no value any more",
            f"All operands are finite; their sums and squares are too large for {finding.element.dtype}.",
            GENERAL,
        )
    if base(finding) not in bases("WN701-product"):
        return None
    return Explanation(
        f"{operator_text(finding)} of {operands_text(finding)} is NaN{derivative(finding)}: products of both signs exceed {limit(finding)}, and Inf - Inf has no value",
        f"All operands are finite; products of them are too large for {finding.element.dtype} and cancel to no value.",
        GENERAL,
    )


RULE = Rule(
    "WN701",
    "out-of-range",
    match,
    torch="all",
    fixes=(
        *(
            reformulation(
                f"{cast} for the mean square and the product",
                "x * rsqrt(mean(x**2, d, k) + e)",
                f"type_as({cast}(x) * rsqrt(mean({cast}(x) ** 2, dim=d, keepdim=k) + e), x)",
                wide=f"{cast}(x)",
            )
            for cast in ("float", "double")
        ),
        *(
            reformulation(
                f"{cast} for the mean square and the quotient",
                "x / sqrt(mean(x**2, d, k) + e)",
                f"type_as({cast}(x) / sqrt(mean({cast}(x) ** 2, dim=d, keepdim=k) + e), x)",
                wide=f"{cast}(x)",
            )
            for cast in ("float", "double")
        ),
        *SOFTMAX,
        *NORM,
        *MEAN_ROOT,
        *MAGNITUDE,
        *ROOT_OF_PRODUCT,
        setting(
            "torch.autocast with dtype=torch.bfloat16, which has the range of float32, or float32 for this operation",
            "float16",
        ),
        setting("operands scaled down before this operation, or float64 for it", "bfloat16", "float32", "complex64"),
    ),
)
