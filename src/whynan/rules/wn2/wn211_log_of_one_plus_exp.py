"""WN211 log-of-one-plus-exp: log(1 + exp(x)) of a large x.

What it is
    log(1 + exp(x)), or log1p(exp(x)), of an x whose exponential is infinite.

Why it breaks
    exp(88.8) exceeds the largest float32, and exp(11.1) the largest float16: the logarithm of Inf is Inf, where the
    exact value is x.

Example
    Bad::

        x = torch.tensor([100.0, 1.0])
        loss = torch.log(1 + torch.exp(x)).mean()

    Good::

        x = torch.tensor([100.0, 1.0])
        loss = torch.nn.functional.softplus(x).mean()

Fix
    Use softplus.

When it is fine
    Where the operand is bounded.

References
    torch.nn.functional.softplus; TorchFix TOR106.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_exponential
from whynan.rules.intents import BOUNDED, BOUNDED_EXPONENT, reformulation

RULE = Rule(
    "WN211",
    "log-of-one-plus-exp",
    match_exponential(
        "log(1 + exp(x))",
        "log(1 + exp(x))",
        "The logarithm takes the exponential back, but in between it has left the range; softplus(x) is the same function, "
        "and stays finite.",
    ),
    fixes=(
        reformulation("softplus(x) instead of log(1 + exp(x))", "log(1 + exp(x))", "softplus(x)"),
        reformulation("-logsigmoid(-x) instead of log(1 + exp(x))", "log(1 + exp(x))", "-logsigmoid(-x)"),
        *BOUNDED,
        *BOUNDED_EXPONENT,
    ),
)
