"""WN208 log-of-one-minus-sigmoid: the logarithm of 1 - sigmoid(x), where the sigmoid is 1.

What it is
    log(1 - p) of a p that is a sigmoid, in whatever spelling, and exactly 1.

Why it breaks
    In float32 sigmoid(17) is 1, as there is no number between 1 - 6e-8 and 1: 1 - p is 0, and its logarithm -Inf,
    where the exact one is -17.

Example
    Bad::

        logits = torch.tensor([20.0, 1.0])
        loss = -torch.log(1 - torch.sigmoid(logits)).mean()

    Good::

        logits = torch.tensor([20.0, 1.0])
        loss = -torch.nn.functional.logsigmoid(-logits).mean()

Fix
    Use logsigmoid(-x), or binary_cross_entropy_with_logits, which takes logits.

When it is fine
    Where the -Inf is selected away, in backward too.

References
    torch.nn.functional.logsigmoid.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_logarithm
from whynan.rules.intents import LOG, reformulation

RULE = Rule(
    "WN208",
    "log-of-one-minus-sigmoid",
    match_logarithm(
        "1 - sigmoid(x)",
        "1 - sigmoid(x)",
        "A sigmoid rounds to 1 long before its operand is large (17 in float32), and nothing is left of the difference; "
        "logsigmoid(-x) is the same logarithm, and stays finite.",
    ),
    fixes=(
        reformulation("logsigmoid(-x) instead of log(1 - sigmoid(x))", "log(1 - sigmoid(x))", "logsigmoid(-x)"),
        reformulation("-softplus(x) instead of log(1 - sigmoid(x))", "log(1 - sigmoid(x))", "-softplus(x)"),
        *LOG,
    ),
)
