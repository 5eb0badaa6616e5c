"""WN117 reciprocal-of-subnormal: a quotient whose denominator is not 0, but subnormal.

What it is
    1 / x or a / x where x is smaller than the dtype's smallest normal number.

Why it breaks
    Numbers reach further down than up: the reciprocal of one below 1 / max, which is subnormal, is out of range. A test
    for x == 0 does not find it.

Example
    Bad::

        x = torch.tensor([1e-39, 1.0])
        y = 1 / x

    Good::

        x = torch.tensor([1e-39, 1.0])
        y = 1 / x.clamp_min(torch.finfo(x.dtype).tiny)

Fix
    Keep the denominator above the dtype's smallest normal number, not merely away from 0.

When it is fine
    Where Inf is as good as a very large number.

References
    IEEE 754-2019, 2.1, subnormal number.
"""

from __future__ import annotations

from typing import Final

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import base, excess, is_in_library_step, number_text, smallest_normal, value
from whynan.rules.intents import SOFTMAX, guard
from whynan.rules.wording import derivative, exact_attempt, named_value_text, operand_source


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if finding.birth != "overflow" or is_in_library_step(finding) or name not in ("div", "true_divide", "reciprocal"):
        return None
    by = "self" if name == "reciprocal" else "other"
    below, smallest, attempt = value(finding, by), smallest_normal(finding.element.dtype), exact_attempt(finding)
    if below is None or attempt is None or smallest is None or not 0 < abs(below) < smallest:
        return None
    return Explanation(
        f"{attempt.words} {excess(attempt.result, finding.element.dtype, shown=False)}"
        f"{derivative(finding) or named_value_text(operand_source(finding, by), number_text(below))}",
        f"The denominator is not 0, but below {number_text(smallest)}, the smallest normal number of {finding.element.dtype}; numbers reach "
        "further down than up, and the reciprocals of the smallest are out of range.",
        OPERATION,
    )


_LEAST: Final = "finfo(b).tiny * (0.25 + finfo(b).eps)"
"""The smallest number whose reciprocal is finite."""


RULE = Rule(
    "WN117",
    "reciprocal-of-subnormal",
    match,
    fixes=(
        *SOFTMAX,
        guard(
            "a denominator of at least the smallest magnitude that has a reciprocal",
            "a / b",
            f"a / where(b < 0, clamp(b, max=-({_LEAST})), clamp(b, min={_LEAST}))",
        ),
    ),
)
