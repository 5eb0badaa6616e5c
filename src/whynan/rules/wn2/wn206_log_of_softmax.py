"""WN206 log-of-softmax: the logarithm of a softmax that is 0.

What it is
    log, log2 or log10 of a softmax, in whatever spelling, one of whose probabilities is exactly 0.

Why it breaks
    In float32 exp(-104) is 0: a logit that lies so far below the greatest of its row gets the probability 0, whose
    logarithm is -Inf; its gradient is Inf.

Example
    Bad::

        logits = torch.tensor([[200.0, 0.0]])
        loss = -torch.log(torch.softmax(logits, -1))[:, 1].mean()

    Good::

        logits = torch.tensor([[200.0, 0.0]])
        loss = -torch.log_softmax(logits, -1)[:, 1].mean()

Fix
    Use log_softmax, or cross_entropy, which takes logits.

When it is fine
    Where the -Inf is selected away, in backward too.

References
    torch.nn.functional.log_softmax.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_logarithm
from whynan.rules.intents import LOG, reformulation

RULE = Rule(
    "WN206",
    "log-of-softmax",
    match_logarithm(
        "softmax(x)",
        "softmax(x)",
        "A softmax rounds to 0 where a logit lies far below the greatest of its row; log_softmax is the same logarithm, computed "
        "without it, and stays finite.",
        masked=False,
    ),
    fixes=(
        reformulation("log_softmax(x) instead of log(softmax(x))", "log(softmax(x, d))", "log_softmax(x, d)"),
        reformulation(
            "log_softmax(x) instead of the logarithm of a softmax by hand",
            "log(exp(x) / sum(exp(x), d, True))",
            "log_softmax(x, d)",
        ),
        reformulation(
            "x - logsumexp(x) instead of the logarithm of a softmax by hand",
            "log(exp(x) / sum(exp(x)))",
            "x - logsumexp(flatten(x), 0)",
        ),
        reformulation(
            "y * log_softmax(x) instead of xlogy(y, softmax(x))", "xlogy(y, softmax(x, d))", "y * log_softmax(x, d)"
        ),
        *LOG,
    ),
)
