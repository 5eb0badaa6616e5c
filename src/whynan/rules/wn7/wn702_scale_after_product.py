"""WN702 scale-after-product: a product of matrices that is out of range before it is made smaller.

What it is
    q @ k, as in attention scores, that is divided by sqrt(d) afterwards, in whatever spelling, and exceeds the dtype's maximum.

Why it breaks
    Each score is a sum of d products, which float16 has no room for beyond 65504. The division comes too late.

Example
    Bad::

        q = torch.full((1, 2, 64), 40.0, dtype=torch.float16)
        scores = (q @ q.transpose(1, 2)) / 8

    Good::

        q = torch.full((1, 2, 64), 40.0, dtype=torch.float16)
        scores = (q / 8) @ q.transpose(1, 2)

Fix
    Scale one of the factors before the product, or compute the product in float32.

When it is fine
    Never: the scores are wrong.

References
    torch.nn.functional.scaled_dot_product_attention.
"""

from __future__ import annotations

from whynan.expr import Expressions
from whynan.expr.structure import matches
from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import expressions
from whynan.rules.facts import all_finite, base, excess, limit, number_text, operand, value
from whynan.rules.intents import reformulation, setting
from whynan.rules.wording import exact_attempt, operands_text, operator_text


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "overflow" or finding.phase == "backward" or not all_finite(finding):
        return None
    found, factor = expressions(finding), _fused(finding)
    if factor is None and found is not None and base(finding) in TORCH.having("WN702"):
        factor = _made_smaller(found)
    if factor is None:
        return None
    attempt = exact_attempt(finding)
    text = (
        f"{operator_text(finding)} of {operands_text(finding)} exceeds {limit(finding)}"
        if attempt is None
        else f"{attempt.words} {excess(attempt.result, finding.element.dtype, shown=False)}"
    )
    return Explanation(
        f"{text}, before it is multiplied by {number_text(factor)}",
        f"All operands are finite; the sum of their products is too large for {finding.element.dtype}, and is made smaller only "
        "afterwards. Scale one of the factors first: the scores are the same.",
        STRUCTURE,
    )


def _fused(finding: Finding) -> float | None:
    """The number below 1 that a product is multiplied by in the same operation, where nothing is added to it."""
    factor = value(finding, "alpha") if base(finding) == "addmm" and operand(finding, "self") is None else None
    return abs(factor) if factor is not None and 0 < abs(factor) < 1 else None


def _made_smaller(found: Expressions) -> float | None:
    """The number below 1 that the product is multiplied by next."""
    product = found.output_term(found.middle)
    for event in found.consumers():
        scaled = next(matches("A * x", found.output_term(event), x=product), None)
        if scaled is not None and scaled.numbers["A"] != 1:
            factor = abs(scaled.numbers["A"])
            return factor if factor < 1 else None
    return None


RULE = Rule(
    "WN702",
    "scale-after-product",
    match,
    fixes=(
        *(
            reformulation(
                f"{cast} for the product and its scale",
                f"{product}(a, b) {by} s",
                f"type_as({product}({cast}(a), {cast}(b)) {by} s, a)",
            )
            for cast in ("float", "double")
            for product in ("matmul", "bmm")
            for by in ("/", "*")
        ),
        *(
            reformulation(
                "one factor made smaller before the product", f"{product}(a, b) {by} s", f"{product}(a {by} s, b)"
            )
            for product in ("matmul", "bmm")
            for by in ("/", "*")
        ),
        setting("scaled_dot_product_attention(q, k, v), or float32 for the product"),
    ),
)
