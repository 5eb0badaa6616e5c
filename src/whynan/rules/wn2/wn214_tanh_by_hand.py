"""WN214 tanh-by-hand: a tanh that is written out, of a large x.

What it is
    (exp(x) - exp(-x)) / (exp(x) + exp(-x)), in whatever spelling, where an exponential is infinite.

Why it breaks
    exp(88.8) exceeds the largest float32: Inf / Inf has no value, where the exact one is 1.

Example
    Bad::

        x = torch.tensor([100.0, 1.0])
        y = (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))

    Good::

        x = torch.tensor([100.0, 1.0])
        y = torch.tanh(x)

Fix
    Use torch.tanh.

When it is fine
    Where the operand is bounded.

References
    torch.tanh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import at_the_exponential, exponential_too_large, goes_into
from whynan.rules.intents import reformulation

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    found = exponential_too_large(finding)
    if found is None or not goes_into(found, "tanh"):
        return None
    return Explanation(
        at_the_exponential(finding, "a tanh that is written out"),
        "Inf / Inf is NaN; torch.tanh is finite for every x.",
        STRUCTURE,
    )


RULE = Rule(
    "WN214",
    "tanh-by-hand",
    match,
    fixes=(
        *(
            reformulation("tanh(x) instead of its exponentials", pattern, "tanh(x)")
            for pattern in (
                "(exp(x) - exp(-x)) / (exp(x) + exp(-x))",
                "(exp(2 * x) - 1) / (exp(2 * x) + 1)",
                "(1 - exp(-2 * x)) / (1 + exp(-2 * x))",
                "sinh(x) / cosh(x)",
            )
        ),
    ),
)
