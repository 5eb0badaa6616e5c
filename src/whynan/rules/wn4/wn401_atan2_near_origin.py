"""WN401 atan2-near-origin: the derivative of atan2 beside the origin.

What it is
    Both arguments of atan2 are so small that the sum of their squares is below 2.94e-39.

Why it breaks
    The derivative divides by y**2 + x**2; the reciprocal of a number below 2.94e-39 exceeds float32, and 0 *
    Inf is NaN.

Example
    Bad::

        imag = torch.tensor([1e-20, 1.0], requires_grad=True)
        real = torch.tensor([1e-20, 1.0], requires_grad=True)
        phase = torch.atan2(imag, real)
        phase.sum().backward()

    Good::

        imag = torch.tensor([1e-20, 1.0], requires_grad=True)
        real = torch.tensor([1e-20, 1.0], requires_grad=True)
        near = imag.abs() + real.abs() < 1e-15
        phase = torch.atan2(imag, torch.where(near, 1.0, real))
        phase.sum().backward()

Fix
    Give a vector that has no direction a harmless one before atan2; adding an epsilon to one argument moves the
    pole.

When it is fine
    An exact origin: torch 2.13 masks it and gives gradient 0.

References
    torch 2.13, atan2_backward.
"""

from __future__ import annotations

from typing import Final

from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, Explanation, Rule
from whynan.rules.facts import base, forward_base, forward_value, limit, maximum, number_text
from whynan.rules.intents import reformulation
from whynan.rules.wording import forward_operand_source


def match(finding: Finding) -> Explanation | None:
    if forward_base(finding) != "atan2" or finding.birth == "invalid":
        return None
    y, x = forward_value(finding, "self"), forward_value(finding, "other")
    greatest = maximum(finding.element.dtype)
    if y is None or x is None or greatest is None or base(finding) not in ("reciprocal", "div"):
        return None
    square = y * y + x * x
    if square > 1 / greatest:
        return None
    names = forward_operand_source(finding, "self") or "y", forward_operand_source(finding, "other") or "x"
    return Explanation(
        f"the derivative of atan2 divides by y² + x²: at {names[0]} = {number_text(y)} and {names[1]} = {number_text(x)} that is "
        f"{number_text(square)}, whose reciprocal exceeds {limit(finding)}",
        "Beside the origin the direction of a vector turns infinitely fast; its derivative does not fit the dtype.",
        DERIVATIVE,
    )


_LARGEST: Final = "detach(maximum(abs(y), abs(x)))"
_LARGER: Final = f"where(logical_or({_LARGEST} == 0, {_LARGEST} > finfo(x).max), 1, {_LARGEST})"


RULE = Rule(
    "WN401",
    "atan2-near-origin",
    match,
    torch="all; at an exact origin not in 2.13, which masks it",
    fixes=(
        reformulation(
            "both over the larger of their magnitudes",
            "atan2(y, x)",
            f"atan2(y / {_LARGER}, x / {_LARGER})",
            larger=_LARGEST,
            scale=_LARGER,
        ),
    ),
)
