"""WN102 division-by-zero: a finite value divided by zero.

What it is
    The denominator (or the operand of reciprocal, rsqrt, a negative power) is exactly 0.

Why it breaks
    1/x has a pole at 0: the result is Inf. A remainder of a division by 0 has no value at all: NaN.

Example
    Bad::

        degree = torch.tensor([0.0, 2.0])      # an isolated node
        weight = degree.rsqrt()

    Good::

        degree = torch.tensor([0.0, 2.0])
        weight = torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0.0)

Fix
    Keep the denominator away from 0 with a clamp of the right size for the dtype, or select a safe value first
    (double where).

When it is fine
    Where the infinite quotient is itself meant and masked later, in backward too.

References
    IEEE 754-2019, 7.3.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, OPERATION, Explanation, Rule
from whynan.rules.facts import (
    base,
    forward_base,
    forward_value,
    has_infinite_operand,
    is_in_library_step,
    is_nan,
    is_onnx,
    is_zero,
    number_text,
    operand,
    result,
    value,
)
from whynan.rules.intents import ANGLE, LARGE_QUOTIENT, POLE, ROOT_OF_PRODUCT, guard
from whynan.rules.wording import derivative, forward_operand_source, named_value_text, operand_source

_QUOTIENTS = ("div", "true_divide", "floor_divide")
_WHY = "A quotient has a pole where its denominator is 0, and its gradient has one too."
_WHY_FORWARD = "A quotient has a pole where its denominator is 0."


def match(finding: Finding) -> Explanation | None:
    if is_in_library_step(finding):
        return None
    if has_infinite_operand(finding):
        return _again(finding)
    text, zero = _attempt(finding)
    if text is None:
        return None
    where = derivative(finding) or named_value_text(operand_source(finding, zero), "0")
    return Explanation(f"{text}{where}", _WHY_FORWARD if is_onnx(finding) else _WHY, OPERATION)


def _attempt(finding: Finding) -> tuple[str | None, str]:
    """What was divided by 0, and the operand that is 0."""
    name, out = base(finding), result(finding)
    if name in _QUOTIENTS and is_zero(finding, "other") and not is_zero(finding, "self"):
        above = operand(finding, "self")
        if above is not None and isinstance(above.value, str):
            return f"({above.value}) / 0 has no finite value", "other"
        return (None if is_nan(finding) else f"{number_text(value(finding, 'self'))} / 0 is {out}"), "other"
    if name == "addcdiv" and is_zero(finding, "tensor2") and not is_zero(finding, "tensor1"):
        return f"{number_text(value(finding, 'tensor1'))} / 0 is {out}", "tensor2"
    if name in ("fmod", "remainder") and is_zero(finding, "other") and value(finding, "self") is not None:
        return f"{number_text(value(finding, 'self'))} modulo 0 is {out}", "other"
    if name in ("reciprocal", "rsqrt") and is_zero(finding, "self"):
        return f"{'1 / 0' if name == 'reciprocal' else '1 / sqrt(0)'} is {out}", "self"
    exponent = value(finding, "exponent")
    if name == "pow" and is_zero(finding, "self") and exponent is not None and exponent < 0:
        return f"0 ** ({number_text(exponent)}) is {out}", "self"
    return None, ""


def _again(finding: Finding) -> Explanation | None:
    """The derivative of a quotient that was Inf in the forward, computed from that Inf."""
    of = forward_base(finding)
    if of not in ("reciprocal", "rsqrt") or forward_value(finding, "self") != 0:
        return None
    word = "1 / x" if of == "reciprocal" else "1 / sqrt(x)"
    return Explanation(
        f"the derivative of {word} at 0 is infinite{named_value_text(forward_operand_source(finding, 'self'), '0')}, and the derivative is {result(finding)}",
        "The derivative is computed from the forward's own result, which was Inf there. It is computed even where that "
        "result was selected away afterwards.",
        DERIVATIVE,
    )


RULE = Rule(
    "WN102",
    "division-by-zero",
    match,
    torch="all",
    fixes=(
        *ROOT_OF_PRODUCT,
        *ANGLE,
        *POLE,
        *LARGE_QUOTIENT,
        guard(
            "a remainder of 0 where the divisor is 0",
            "fmod(a, b)",
            "where(b == 0, a - detach(a), fmod(a, where(b == 0, 1, b)))",
        ),
        guard(
            "a remainder of 0 where the divisor is 0",
            "remainder(a, b)",
            "where(b == 0, a - detach(a), remainder(a, where(b == 0, 1, b)))",
        ),
    ),
)
