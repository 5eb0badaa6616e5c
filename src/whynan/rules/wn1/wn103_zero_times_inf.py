"""WN103 zero-times-inf: zero multiplied by an infinity.

What it is
    One factor is 0 and the other Inf.

Why it breaks
    IEEE 754 defines no value for 0 * Inf: the result is NaN. A mask made by multiplication does not remove an
    Inf.

Example
    Bad::

        distance = torch.tensor([inf, 2.0])      # not reached
        weight = torch.tensor([0.0, 1.0])
        cost = (weight * distance).sum()

    Good::

        distance = torch.tensor([inf, 2.0])
        weight = torch.tensor([0.0, 1.0])
        cost = torch.where(weight > 0, distance, 0.0).sum()

Fix
    Select with where, and give the hidden branch a harmless operand (double where).

When it is fine
    Never as a mask.

References
    pytorch #52248; TensorFlow #38349.
"""

from __future__ import annotations

from typing import Final

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import INF, base, is_nan, number_text, operand, row, value
from whynan.rules.intents import MASKED_FACTOR, guard
from whynan.rules.wording import derivative, operand_source, row_text


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if not is_nan(finding):
        return None
    if name == "prod":
        return _product(finding)
    if name not in ("mul", "addcmul"):
        return None
    names = ("self", "other") if name == "mul" else ("tensor1", "tensor2")
    first, second = (value(finding, n) for n in names)
    if first is None or second is None or {abs(first), abs(second)} != {0.0, INF}:
        return None
    texts = [(operand_source(finding, n), number_text(v)) for n, v in zip(names, (first, second), strict=True)]
    known = " and ".join(f"{text} is {v}" for text, v in texts if text)
    return Explanation(
        f"{number_text(first)} × {number_text(second)} is NaN{derivative(finding) or (f': {known} here' if known else '')}",
        _WHY_BACKWARD
        if finding.phase == "backward"
        else "Multiplying by 0 does not remove an infinity: the product has no value.",
        OPERATION,
    )


_WHY_BACKWARD = (
    "Multiplying by 0 does not remove an infinity: the product has no value. In a backward pass the 0 is often the "
    "gradient of a place that was selected away."
)


def _product(finding: Finding) -> Explanation | None:
    found, span = operand(finding, "self"), row(finding, "self")
    if found is None or span is None or INF not in (abs(span[0]), abs(span[1])):
        return None
    return Explanation(
        f"the product of {row_text(found)} is NaN: 0 × Inf on the way to it has no value",
        "A product with an infinity in it is NaN as soon as another factor, or the product of some others, is 0.",
        OPERATION,
    )


_MEET: Final = "logical_or(logical_and(a == 0, abs(b) > finfo(b).max), logical_and(b == 0, abs(a) > finfo(a).max))"
"""Where 0 meets an infinity."""


RULE = Rule(
    "WN103",
    "zero-times-inf",
    match,
    torch="all",
    fixes=(
        *MASKED_FACTOR,
        guard(
            "0 where 0 meets an infinity",
            "a * b",
            f"where({_MEET}, 0, where({_MEET}, 0, a) * where({_MEET}, 0, b))",
            meets=_MEET,
        ),
        guard("0 where an infinity meets the factor 0", "a * b", "a * where((abs(b) > finfo(b).max) * (a == 0), 0, b)"),
        guard("0 where a factor is infinite", "a * b", "a * where(abs(b) > finfo(b).max, 0, b)"),
    ),
)
