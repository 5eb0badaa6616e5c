"""WN304 pow-of-negative: a fractional power of a negative number.

What it is
    pow meets a negative base and an exponent that is no integer.

Why it breaks
    There is no real value: NaN.

Example
    Bad::

        x = torch.tensor([-2.0, 2.0])
        y = x ** 0.3

    Good::

        x = torch.tensor([-2.0, 2.0])
        y = x.sign() * x.abs() ** 0.3

Fix
    Bound the base, or write sign(x) * |x| ** p where that is meant.

When it is fine
    Where the NaN is selected away, in backward too.

References
    IEEE 754-2019, 9.2.1.
"""

from __future__ import annotations

from whynan.floats import format_value
from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import base, number_text, value
from whynan.rules.intents import guard
from whynan.rules.wording import derivative, named_value_text, operand_source


def match(finding: Finding) -> Explanation | None:
    found, exponent = value(finding, "self"), value(finding, "exponent")
    if base(finding) != "pow" or found is None or not found < 0 or exponent is None or exponent.is_integer():
        return None
    power = format_value(exponent, digits=6)
    power = f"({power})" if exponent < 0 else power
    return Explanation(
        f"({number_text(found)}) ** {power} is NaN{derivative(finding) or named_value_text(operand_source(finding, 'self'), 'negative')}",
        "A negative number has no real power whose exponent is not whole.",
        OPERATION,
    )


RULE = Rule(
    "WN304",
    "pow-of-negative",
    match,
    torch="all",
    fixes=(
        guard("0 as the least base", "x ** p", "clamp(x, min=0) ** p"),
        guard("0 where the base is negative", "x ** p", "where(x < 0, 0, where(x < 0, 1, x) ** p)"),
        guard(
            "0 where the base is negative and the power no number",
            "x ** p",
            "where(logical_and(x < 0, isnan(x ** p)), 0, where(logical_and(x < 0, isnan(x ** p)), 1, x) ** p)",
            without_power="logical_and(x < 0, isnan(x ** p))",
        ),
        guard(
            "the power of the magnitude with its sign, where the base is negative and the power no number",
            "x ** p",
            "where(logical_and(x < 0, isnan(x ** p)), -1, 1) * where(logical_and(x < 0, isnan(x ** p)), -x, x) ** p",
            without_power="logical_and(x < 0, isnan(x ** p))",
        ),
    ),
)
