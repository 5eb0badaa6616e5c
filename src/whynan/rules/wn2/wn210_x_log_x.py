"""WN210 x-log-x: x log(x) at 0.

What it is
    x log(x), as in an entropy, in whatever spelling, where a probability is 0.

Why it breaks
    The logarithm is -Inf, and 0 times -Inf is NaN.

Example
    Bad::

        p = torch.tensor([1.0, 0.0])
        entropy = -(p * p.log()).sum()

    Good::

        p = torch.tensor([1.0, 0.0])
        entropy = -torch.xlogy(p, p.clamp_min(torch.finfo(p.dtype).tiny)).sum()

Fix
    Use xlogy(p, p.clamp_min(tiny)), or an entropy of the logits.

When it is fine
    Where the product is masked, in forward and in backward.

References
    torch.xlogy.
"""

from __future__ import annotations

from whynan.expr.structure import fits
from whynan.ops.names import base_name
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import is_exact_zero, logarithm_of_zero, logarithm_product_message, logarithms_of_zero
from whynan.rules.intents import LOG_OF_ONE, guard, reformulation


def _is_masked(finding: Finding) -> bool:
    """Whether x is the softmax of a logit of -Inf, which is another hazard's."""
    at = logarithm_of_zero(finding)
    return at is not None and fits("softmax(x)", at[1]) and is_exact_zero(finding)


def _is_chosen(finding: Finding) -> bool:
    """Whether the logarithm is multiplied with booleans: a mask, which chooses, and no number that it is of."""
    around = finding.around
    later = () if around is None else (one for one in around.operations if one.hops > 0)
    products = (one for one in later if base_name(one.op) == "mul")
    return any(argument.dtype == "bool" for one in products for argument in one.arguments)


def match(finding: Finding) -> Explanation | None:
    fitting = fits("x ** P * log(x ** Q * ...) * ...", *logarithms_of_zero(finding))
    if not fitting or _is_masked(finding) or _is_chosen(finding):
        return None
    return Explanation(
        "log(0) is -Inf, and 0 × -Inf is NaN, in x log(x) at x = 0"
        if finding.phase != "backward"
        else logarithm_product_message(finding, "x log(x) at x = 0"),
        "The limit of x log(x) is 0, but 0 times -Inf is NaN. torch.xlogy is 0 there in the forward; where a gradient is needed, "
        "keep the operand of the logarithm away from 0 as well.",
        STRUCTURE,
    )


RULE = Rule(
    "WN210",
    "x-log-x",
    match,
    fixes=(
        reformulation(
            "xlogy(x, x) with 1 instead of 0 in its logarithm", "x * log(x)", "xlogy(x, where(x == 0, 1, x))"
        ),
        reformulation(
            "xlogy(x, x / y) with 1 instead of 0 in its logarithm",
            "x * log(x / y)",
            "xlogy(x, where(x == 0, 1, x / y))",
        ),
        *LOG_OF_ONE,
        guard("1 instead of 0 in the logarithm", "xlogy(y, x)", "xlogy(y, where(x == 0, 1, x))"),
    ),
)
