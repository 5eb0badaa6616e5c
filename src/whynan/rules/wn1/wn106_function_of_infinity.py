"""WN106 function-of-infinity: a function that has no value at infinity.

What it is
    sin, cos, tan, a remainder, or a gated activation (silu, gelu, mish, hardswish, glu) meets Inf or -Inf.

Why it breaks
    A periodic function has no limit there; a gate multiplies -Inf by 0.

Example
    Bad::

        position = torch.tensor([inf, 1.0])
        wave = torch.sin(position)

    Good::

        position = torch.tensor([3e38, 1.0])
        wave = torch.sin(position)

Fix
    Find where the infinity was made, and stop it there; or clamp the operand to the dtype's finite range.

When it is fine
    Where the result is selected away, in backward too.

References
    IEEE 754-2019, 9.2.1.
"""

from __future__ import annotations

from typing import Final

from whynan.expr.structure import fits
from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.rules.base import OPERATION, STRUCTURE, Explanation, Rule
from whynan.rules.expressions import downstream, product_message, without_coefficient, zero_times_infinity
from whynan.rules.facts import INF, base, is_nan, number_text, operand, row, value
from whynan.rules.intents import guard
from whynan.rules.wording import derivative, named_value_text, operand_source, operator_text, row_text

_GATES: Final = "(sigmoid | hardsigmoid | erf | tanh)"
_GATE: Final = f"{_GATES}(C * x) | {_GATES}(C * log(1 + exp(x)))"
_GATED: Final = f"{_GATE} | 1 + B * ({_GATE})"
"""A sigmoid, an error function moved to 0 and 2, a tanh of softplus(x)."""
_LOSS_OF_LOGITS: Final = "q - log(sigmoid(x)) | q + log(1 + exp(-x))"
_INSIDE = {
    "binary_cross_entropy_with_logits": "the loss multiplies the logit by 1 - target, or subtracts it from itself",
    "softsign": "it divides an infinity by an infinity",
    "renorm": "the row is scaled by its norm, and Inf × (1 / Inf) has no value",
}


_WHY_GATED: Final = "The activation is its operand times a gate, and the gate of -Inf is 0. The product of 0 and an infinity has no value."
_WHY_LOGIT: Final = (
    "The loss multiplies the logit by 1 - target, and 0 times an infinity has no value. An infinite logit came in; look where it "
    "was made."
)


def match(finding: Finding) -> Explanation | None:
    name, span, found = base(finding), row(finding, "self"), operand(finding, "self")
    if finding.phase != "backward" and (written := _written_out(finding)) is not None:
        return written
    if span is None or found is None or finding.birth != "invalid" or not is_nan(finding):
        return None
    low, high = span
    if INF not in (abs(low), abs(high)):
        return None
    end = number_text(low if low == -INF else high)
    where = derivative(finding) or named_value_text(operand_source(finding, "self"), end)
    if name in TORCH.having("periodic"):
        text, why = (
            f"{name}({end}) is NaN{where}",
            "A periodic function does not settle towards infinity: it has no value there.",
        )
    elif name in TORCH.having("gated"):
        text = f"{operator_text(finding)} of {row_text(found)} is NaN: its gate multiplies an infinity by 0"
        why = _WHY_GATED
    elif name in _INSIDE:
        text, why = (
            f"{operator_text(finding)} of {row_text(found)} is NaN: {_INSIDE[name]}",
            "An infinite operand came in; look where it was made.",
        )
    else:
        return None
    return Explanation(text, why, OPERATION)


def _written_out(finding: Finding) -> Explanation | None:
    """Of such a function that is written as its operations: the product of 0 and an infinity in it."""
    at = zero_times_infinity(finding) if base(finding) == "mul" else None
    if at is None:
        return None
    names = ("self", "other") if value(finding, "other") == 0 else ("other", "self")
    endless, gate = (at[0].argument_term(at[0].middle, name) for name in names)
    if endless is None or gate is None:
        return None
    x = without_coefficient(endless)
    if value(finding, names[0]) == -INF and fits(_GATED, without_coefficient(gate), x=x):
        return Explanation(product_message(finding, "an activation, x times its gate"), _WHY_GATED, STRUCTURE)
    if fits(_LOSS_OF_LOGITS, *downstream(at[0]), q=at[1], x=x):
        return Explanation(product_message(finding, "the cross-entropy of logits"), _WHY_LOGIT, STRUCTURE)
    return None


RULE = Rule(
    "WN106",
    "function-of-infinity",
    match,
    fixes=(
        *(
            guard(
                "the largest finite number instead of an infinity",
                f"{name}(x)",
                f"{name}(clamp(x, min=finfo(x).min, max=finfo(x).max))",
            )
            for name in ("sin", "cos", "tan", "silu", "gelu", "mish", "hardswish")
        ),
        guard(
            "the largest finite number instead of an infinity",
            "binary_cross_entropy_with_logits(x, y)",
            "binary_cross_entropy_with_logits(clamp(x, min=finfo(x).min, max=finfo(x).max), y)",
        ),
    ),
)
