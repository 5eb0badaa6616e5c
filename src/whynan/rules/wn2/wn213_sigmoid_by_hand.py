"""WN213 sigmoid-by-hand: a sigmoid that is written out, of a large x.

What it is
    exp(x) / (1 + exp(x)) or 1 / (1 + exp(-x)), where the exponential is infinite.

Why it breaks
    Inf / Inf has no value; 1 / Inf is 0, but the derivative multiplies that 0 with Inf.

Example
    Bad::

        x = torch.tensor([100.0, 1.0])
        p = torch.exp(x) / (1 + torch.exp(x))

    Good::

        x = torch.tensor([100.0, 1.0])
        p = torch.sigmoid(x)

Fix
    Use torch.sigmoid.

When it is fine
    Where the operand is bounded.

References
    torch.sigmoid.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_exponential
from whynan.rules.intents import BOUNDED, reformulation

RULE = Rule(
    "WN213",
    "sigmoid-by-hand",
    match_exponential(
        "sigmoid(x) ** A * ...",
        "a sigmoid that is written out",
        "Inf / Inf is NaN, and where the exponential stands below the line alone the value is right and its gradient is NaN; "
        "torch.sigmoid is finite for every x.",
    ),
    fixes=(
        reformulation("sigmoid(x) instead of exp(x) / (1 + exp(x))", "exp(x) / (1 + exp(x))", "sigmoid(x)"),
        reformulation(
            "exp(logsigmoid(x)) instead of exp(x) / (1 + exp(x))", "exp(x) / (1 + exp(x))", "exp(logsigmoid(x))"
        ),
        reformulation("sigmoid(-x) instead of 1 / (1 + exp(x))", "a / (1 + exp(x))", "a * sigmoid(-x)"),
        reformulation("exp(logsigmoid(-x)) instead of 1 / (1 + exp(x))", "a / (1 + exp(x))", "a * exp(logsigmoid(-x))"),
        *BOUNDED,
    ),
)
