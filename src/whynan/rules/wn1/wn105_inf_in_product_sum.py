"""WN105 inf-in-product-sum: an infinity inside a matrix product or convolution.

What it is
    A row or column of a matrix product, or an operand of a convolution, holds an Inf.

Why it breaks
    Each result is a sum of products: Inf times 0 is NaN, and so is Inf added to -Inf.

Example
    Bad::

        attention = torch.tensor([[0.0, 1.0]])          # the padded place has weight 0
        values = torch.tensor([[inf], [1.0]])           # and was never computed
        mixed = attention @ values

    Good::

        attention = torch.tensor([[0.0, 1.0]])
        values = torch.tensor([[inf], [1.0]]).masked_fill(torch.tensor([[True], [False]]), 0.0)
        mixed = attention @ values

Fix
    Replace the infinite places by 0 before the product: a weight of 0 does not hide them.

When it is fine
    Never.

References
    pytorch #101967.
"""

from __future__ import annotations

from whynan.ops.names import bases
from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import base, has_infinite_operand, is_nan
from whynan.rules.intents import guard
from whynan.rules.wording import derivative, operands_text, operator_text


def match(finding: Finding) -> Explanation | None:
    if (
        base(finding) not in bases("WN105")
        or finding.birth != "invalid"
        or not is_nan(finding)
        or not has_infinite_operand(finding)
    ):
        return None
    return Explanation(
        f"{operator_text(finding)} of {operands_text(finding)} is NaN{derivative(finding)}: among the products that it adds, "
        "Inf meets 0 or an infinity of the other sign",
        "Each element of the result is a sum of products. A factor of 0 does not hide an infinity, and infinities of "
        "opposite signs cancel to no value.",
        OPERATION,
    )


RULE = Rule(
    "WN105",
    "inf-in-product-sum",
    match,
    torch="all",
    fixes=(
        *(
            guard(
                "0 instead of an infinite element",
                f"{product}(a, b)",
                f"{product}(where(abs(a) > finfo(a).max, 0, a), where(abs(b) > finfo(b).max, 0, b))",
            )
            for product in ("matmul", "bmm", "mm", "mv", "dot")
        ),
    ),
)
