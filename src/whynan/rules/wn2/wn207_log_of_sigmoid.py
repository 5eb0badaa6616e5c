"""WN207 log-of-sigmoid: the logarithm of a sigmoid that is 0.

What it is
    log, log2 or log10 of a sigmoid, in whatever spelling, that is exactly 0.

Why it breaks
    In float32 sigmoid(-104) is 0: its logarithm is -Inf, where the exact one is -104.

Example
    Bad::

        margin = torch.tensor([-200.0, 1.0])
        loss = -torch.log(torch.sigmoid(margin)).mean()

    Good::

        margin = torch.tensor([-200.0, 1.0])
        loss = -torch.nn.functional.logsigmoid(margin).mean()

Fix
    Use logsigmoid, or binary_cross_entropy_with_logits, which takes logits.

When it is fine
    Where the -Inf is selected away, in backward too.

References
    torch.nn.functional.logsigmoid; the losses of DPO and of pairwise ranking.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_logarithm
from whynan.rules.intents import LOG, reformulation

RULE = Rule(
    "WN207",
    "log-of-sigmoid",
    match_logarithm(
        "sigmoid(x)",
        "sigmoid(x)",
        "A sigmoid rounds to 0 where its operand is far below 0; logsigmoid is the same logarithm, and stays finite.",
        masked=False,
    ),
    fixes=(
        reformulation("logsigmoid(x) instead of log(sigmoid(x))", "log(sigmoid(x))", "logsigmoid(x)"),
        reformulation("-softplus(-x) instead of log(sigmoid(x))", "log(sigmoid(x))", "-softplus(-x)"),
        reformulation(
            "logsigmoid(x) instead of the logarithm of a sigmoid by hand", "log(1 / (1 + exp(-x)))", "logsigmoid(x)"
        ),
        reformulation(
            "logsigmoid(2x) instead of the logarithm of a sigmoid by hand",
            "log(0.5 * (1 + tanh(x)))",
            "logsigmoid(2 * x)",
        ),
        *LOG,
    ),
)
