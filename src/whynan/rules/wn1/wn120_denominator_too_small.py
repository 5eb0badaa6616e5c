"""WN120 denominator-too-small: a finite quotient that is out of range because of what it divides by.

What it is
    a / b, or the derivative of a root, where the denominator is farther below 1 than the numerator is above it.

Why it breaks
    A product or a sum of squares of small numbers is far smaller than they are; what is divided by it, or by its root in
    a backward, is larger than the dtype's maximum.

Example
    Bad::

        x, y = torch.tensor([1e-20, 1.0]), torch.tensor([1e-15, 1.0])
        weight = torch.tensor([1e5, 1.0]) / (x * y)

    Good::

        x, y = torch.tensor([1e-20, 1.0]), torch.tensor([1e-15, 1.0])
        weight = torch.tensor([1e5, 1.0]) / ((x * 1e20) * (y * 1e15))

Fix
    Scale up what the denominator is made of, as by its largest magnitude; take the root of each factor of a product.

When it is fine
    Where Inf is as good as a very large number.

References
    torchmetrics #3150.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import GENERAL, Explanation, Rule
from whynan.rules.facts import (
    base,
    excess,
    forward_value,
    is_in_library_step,
    number_text,
    overflows,
    smallest_normal,
    value,
    wider_formats_text,
)
from whynan.rules.intents import MAGNITUDE, MEAN_ROOT, NORM, ROOT_OF_PRODUCT, setting
from whynan.rules.wording import derivative, exact_attempt


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "overflow" or base(finding) not in ("div", "true_divide") or is_in_library_step(finding):
        return None
    above, below = value(finding, "self"), value(finding, "other")
    attempt, dtype = exact_attempt(finding), finding.element.dtype
    if not above or not below or attempt is None or not overflows(attempt.result, dtype) or abs(above * below) >= 1:
        return None
    fits = wider_formats_text(attempt.result, dtype)
    return Explanation(
        f"{attempt.words} {excess(attempt.result, dtype, shown=False)}{f' ({fits})' if fits else ''}{derivative(finding)}",
        f"The denominator is not 0, but too small for {dtype}: what it is made of has to be scaled up.{_of_underflow(finding)}",
        GENERAL,
    )


def _of_underflow(finding: Finding) -> str:
    """What is said of the operand of the forward operation where that has lost digits already."""
    of, least = forward_value(finding, "self"), smallest_normal(finding.element.dtype)
    if not of or least is None or abs(of) >= least:
        return ""
    return f" {number_text(of)} is below {number_text(least)}, the smallest normal number: it has lost digits already."


RULE = Rule(
    "WN120",
    "denominator-too-small",
    match,
    torch="all",
    fixes=(
        *ROOT_OF_PRODUCT,
        *NORM,
        *MEAN_ROOT,
        *MAGNITUDE,
        setting("what the denominator is made of scaled up before this operation, or a wider dtype for it"),
    ),
)
