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

from typing import TYPE_CHECKING

from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import at_the_logarithm, bounds, logarithm_of_zero, of_infinity
from whynan.rules.intents import LOG, reformulation

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    at = logarithm_of_zero(finding)
    if at is None or not at[1].is_call("softmax") or of_infinity(finding):
        return None
    return Explanation(
        at_the_logarithm(finding, "softmax(x)", bounds(at[0], at[1].arguments[0])),
        "A softmax rounds to 0 where a logit lies far below the greatest of its row; log_softmax is the same logarithm, computed "
        "without it, and stays finite.",
        STRUCTURE,
    )


RULE = Rule(
    "WN206",
    "log-of-softmax",
    match,
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
