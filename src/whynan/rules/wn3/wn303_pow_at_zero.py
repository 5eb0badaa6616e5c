"""WN303 pow-at-zero: the derivative of a power at zero.

What it is
    The forward value 0 ** p is 0 for 0 < p < 1; its backward computes p * 0 ** (p - 1).

Why it breaks
    0 to a negative power is Inf, and Inf times a gradient of 0 is NaN.

Example
    Bad::

        x = torch.tensor([0.0, 4.0], requires_grad=True)
        brightness = x.pow(0.45)
        brightness.sum().backward()

    Good::

        x = torch.tensor([0.0, 4.0], requires_grad=True)
        brightness = x.clamp(min=1e-6).pow(0.45)
        brightness.sum().backward()

Fix
    Keep the base of a fractional power away from 0 before the power is taken.

When it is fine
    Where no gradient flows through it.

References
    GeM pooling: Radenovic et al., arXiv 1711.02512; pytorch #8940.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, Explanation, Rule
from whynan.rules.facts import base, forward_base, number_text, value
from whynan.rules.intents import ROOT, epsilon
from whynan.rules.wording import forward_operand_source, named_value_text


def match(finding: Finding) -> Explanation | None:
    if forward_base(finding) not in ("pow", "float_power") or base(finding) != "pow":
        return None
    lowered = value(finding, "exponent")
    if value(finding, "self") != 0 or lowered is None or not -1 < lowered < 0:
        return None
    power = number_text(lowered + 1)
    return Explanation(
        f"the derivative of x ** {power} at 0 is {power} × 0 ** ({number_text(lowered)}), which is infinite"
        f"{named_value_text(forward_operand_source(finding, 'self'), '0')}",
        "The forward value is a healthy 0; a power below 1 has an infinite slope there, and Inf times a gradient of 0 is NaN.",
        DERIVATIVE,
    )


RULE = Rule(
    "WN303",
    "pow-at-zero",
    match,
    fixes=(
        *ROOT,
        epsilon("a base of at least 1e-6", "x ** p", "clamp(x, min=1e-6) ** p"),
    ),
)
