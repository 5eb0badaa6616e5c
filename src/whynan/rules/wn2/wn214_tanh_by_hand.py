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

from whynan.rules.base import Rule
from whynan.rules.expressions import match_exponential
from whynan.rules.intents import reformulation

RULE = Rule(
    "WN214",
    "tanh-by-hand",
    match_exponential(
        "tanh(x) ** A * ...",
        "a tanh that is written out",
        "Inf / Inf is NaN; torch.tanh is finite for every x.",
    ),
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
