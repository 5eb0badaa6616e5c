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

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import INF, base, is_nan, operand, row, said
from whynan.rules.mending import guard
from whynan.rules.wording import derivative, doing, here, row_text, spelled

if TYPE_CHECKING:
    from whynan.records import Finding


_PERIODIC = frozenset("sin cos tan sinc frac fmod remainder".split())
_GATED = frozenset("silu gelu mish hardswish glu".split())
_INSIDE = {
    "binary_cross_entropy_with_logits": "the loss multiplies the logit by 1 - target, or subtracts it from itself",
    "softsign": "it divides an infinity by an infinity",
    "renorm": "the row is scaled by its norm, and Inf × (1 / Inf) has no value",
}


def match(finding: Finding) -> Explanation | None:
    name, span, found = base(finding), row(finding, "self"), operand(finding, "self")
    if span is None or found is None or finding.birth != "invalid" or not is_nan(finding):
        return None
    low, high = span
    if INF not in (abs(low), abs(high)):
        return None
    end = said(low if low == -INF else high)
    where = derivative(finding) or here(spelled(finding, "self"), end)
    if name in _PERIODIC:
        text, why = (
            f"{name}({end}) is NaN{where}",
            "A periodic function does not settle towards infinity: it has no value there.",
        )
    elif name in _GATED:
        text = f"{doing(finding)} of {row_text(found)} is NaN: its gate multiplies an infinity by 0"
        why = "The activation is its operand times a gate, and the gate of -Inf is 0. The product of 0 and an infinity has no value."
    elif name in _INSIDE:
        text, why = (
            f"{doing(finding)} of {row_text(found)} is NaN: {_INSIDE[name]}",
            "An infinite operand came in; look where it was made.",
        )
    else:
        return None
    return Explanation(text, why, OPERATION)


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
