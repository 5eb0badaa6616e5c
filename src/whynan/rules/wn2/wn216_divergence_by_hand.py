"""WN216 divergence-by-hand: p (log(p) - log(q)) where one of them is 0.

What it is
    p (log(p) - log(q)), the Kullback-Leibler divergence, in whatever spelling, where p or q is 0.

Why it breaks
    The logarithm of 0 is -Inf, and 0 times -Inf is NaN.

Example
    Bad::

        p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
        divergence = (p * (p.log() - q.log())).sum()

    Good::

        p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
        divergence = torch.nn.functional.kl_div(q.log(), p, reduction="sum")

Fix
    Use torch.nn.functional.kl_div(log_q, p).

When it is fine
    Where both are greater than 0.

References
    torch.nn.functional.kl_div.
"""

from __future__ import annotations

from typing import Final

from whynan.rules.base import Rule
from whynan.rules.expressions import match_logarithm_product
from whynan.rules.intents import LOG_OF_ONE, guard

_LOGS: Final = "(log | log_softmax)"
_DIVERGENCE: Final = f"(log(p / q) | A * {_LOGS}(p) - A * {_LOGS}(q)) * (p | q) ** P * ..."

RULE = Rule(
    "WN216",
    "divergence-by-hand",
    match_logarithm_product(
        _DIVERGENCE,
        "p × (log(p) - log(q)) with a probability of 0",
        "Where p is 0 the term is 0 in the limit, but 0 times -Inf is NaN; where only q is 0 the divergence is infinite. "
        "torch.nn.functional.kl_div takes log(q), and is 0 where p is 0.",
    ),
    fixes=(
        guard(
            "a logarithm of 1 where p is 0, and of the smallest normal number where only q is",
            "p * (log(p) - log(q))",
            "p * (log(where(p == 0, 1, p)) - log(where(q == 0, finfo(q).tiny, q)))",
        ),
        guard(
            "a quotient of 1 where p is 0, and of the smallest normal number where only q is",
            "p * log(p / q)",
            "p * log(where(p == 0, 1, p / where(q == 0, finfo(q).tiny, q)))",
        ),
        *LOG_OF_ONE,
    ),
)
