"""WN101 zero-over-zero: a quotient of two zeros.

What it is
    Numerator and denominator are both exactly 0.

Why it breaks
    IEEE 754 defines no value for 0/0: the result is NaN.

Example
    Bad::

        x = torch.zeros(2, 3)
        p = x / x.sum(-1, keepdim=True)

    Good::

        x = torch.zeros(2, 3)
        p = x / x.sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)

Fix
    Guard the denominator where it can be 0, and decide what an empty sum means.

When it is fine
    Where the quotient is masked, in forward and in backward.

References
    IEEE 754-2019, 7.2.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import base, forward_base, is_in_library_step, is_nan, is_zero, row
from whynan.rules.intents import (
    LIMITS,
    MAGNITUDE,
    MASKED_SOFTMAX,
    QUOTIENT,
    ROOT_OF_PRODUCT,
    SCALED_LIMITS,
    epsilon,
    guard,
)
from whynan.rules.wording import derivative, is_second_order, named_value_text, operand_source

_SLOPE = (
    "The derivative of a quotient divides by its denominator for every element, even where torch.where or a mask takes the "
    "quotient away: put a harmless denominator in its place before the division."
)
_SECOND = (
    "The backward was differentiated itself (create_graph=True). The first derivative holds quotients that nobody wrote, such as "
    "x / norm(x) for a norm, and where they are 0/0 they have no slope: keep their denominator away from 0 in the forward, as by "
    "a small number inside the root."
)
_OPERANDS = {"div": ("self", "other"), "true_divide": ("self", "other"), "addcdiv": ("tensor1", "tensor2")}


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if is_in_library_step(finding) or not is_nan(finding):
        return None
    if name == "_weight_norm_interface" and row(finding, "v") == (0, 0):
        return Explanation(
            "0 / 0 is NaN: the weight v is divided by its norm, and both are 0 here",
            "A quotient of two zeros has no value, and a vector of zeros has no direction that could be kept.",
            OPERATION,
        )
    if (
        name == "_weight_norm_interface_backward"
        and (norms := row(finding, "saved_norms")) is not None
        and norms[0] == 0
    ):
        return Explanation(
            "0 / 0 is NaN: the derivative of weight_norm divides by the norm of the weight v, which is 0 here",
            "A vector of zeros has no direction that could be kept, and its norm has no slope.",
            OPERATION,
        )
    if name not in _OPERANDS:
        return None
    above, below = _OPERANDS[name]
    if not is_zero(finding, above) or not is_zero(finding, below):
        return None
    return Explanation(
        f"0 / 0 is NaN{derivative(finding) or _where(operand_source(finding, above), operand_source(finding, below))}",
        _SECOND
        if is_second_order(finding)
        else _SLOPE
        if forward_base(finding) in ("div", "true_divide")
        else "A quotient of two zeros has no value; the denominator must be kept away from 0 where the numerator can vanish.",
        OPERATION,
    )


def _where(above: str | None, below: str | None) -> str:
    if above and below and above != below:
        return f": {above} and {below} are both 0 here"
    return named_value_text(below or above, "0")


RULE = Rule(
    "WN101",
    "zero-over-zero",
    match,
    torch="all",
    fixes=(
        *ROOT_OF_PRODUCT,
        *QUOTIENT,
        *LIMITS,
        *SCALED_LIMITS,
        *MASKED_SOFTMAX,
        guard(
            "a variance of 1 where it is 0",
            "log(v) + a / v",
            "log(where(v == 0, 1, v)) + a / where(v == 0, 1, v)",
            variance="where(v == 0, 1, v)",
        ),
        *MAGNITUDE,
        epsilon(
            "a small number inside the root of a norm",
            "vector_norm(x, 2, d, k)",
            "sqrt(sum(x**2, dim=d, keepdim=k) + 1e-12)",
        ),
    ),
)
