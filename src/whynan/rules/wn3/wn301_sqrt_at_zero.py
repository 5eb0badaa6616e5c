"""WN301 sqrt-at-zero: the derivative of a square root at zero.

What it is
    The forward value of sqrt(0) is 0; its backward divides by 2*sqrt(0).

Why it breaks
    The slope of sqrt is infinite at 0: Inf, and NaN at the next product with 0.

Example
    Bad::

        x = torch.tensor([0.0, 4.0], requires_grad=True)
        loss = torch.sqrt(x).sum()
        loss.backward()

    Good::

        x = torch.tensor([0.0, 4.0], requires_grad=True)
        loss = torch.sqrt(x + 1e-12).sum()
        loss.backward()

Fix
    Use vector_norm (subgradient 0), or add a small number inside the root.

When it is fine
    Where no gradient flows through it.

References
    pytorch #6394, #2421.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, Explanation, Rule
from whynan.rules.facts import base, forward_base, forward_is_zero, is_zero, number_text, result, value
from whynan.rules.intents import ROOT, ROOT_EPSILON, ROOT_OF_PRODUCT
from whynan.rules.wording import forward_operand_source


def match(finding: Finding) -> Explanation | None:
    if forward_base(finding) != "sqrt" or not forward_is_zero(finding, "self"):
        return None
    if base(finding) != "div" or not is_zero(finding, "other"):
        return None
    gradient = value(finding, "self")
    outcome = (
        f"{number_text(gradient)} / 0 is {result(finding)}"
        if gradient is not None
        else f"the gradient is {result(finding)}"
    )
    name = forward_operand_source(finding, "self")
    root = f"sqrt({name})" if name else "the root"
    return Explanation(
        f"the derivative of sqrt divides by 2 × {root}, which is 0 here: {outcome}",
        "The forward value is a healthy 0; its gradient divides by twice the root: Inf, or NaN where the gradient that "
        "comes in is 0.",
        DERIVATIVE,
    )


RULE = Rule("WN301", "sqrt-at-zero", match, torch="all", fixes=(*ROOT_OF_PRODUCT, *ROOT, *ROOT_EPSILON))
