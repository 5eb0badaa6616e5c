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

from whynan.expr import Term
from whynan.rules.base import Rule
from whynan.rules.expressions import factors, match_logarithm_product
from whynan.rules.intents import LOG_OF_ONE, guard


def _is_one(term: Term) -> bool:
    parts = factors(term)
    if any(_is_of_ratio(base, parts) for base, power in parts if power == 1 and base.is_call("log")):
        return True
    for difference, power in parts:
        if power != 1 or difference.kind != "sum" or difference.constant or len(difference.parts) != 2:
            continue
        (first, one), (second, other) = difference.parts
        if first.is_call("log", "log_softmax") and second.is_call("log", "log_softmax") and one == -other:
            logs = {first.arguments[0], second.arguments[0]}
            if any(weight > 0 and base in logs for base, weight in parts):
                return True
    return False


def _is_of_ratio(log: Term, weights: tuple[tuple[Term, float], ...]) -> bool:
    """``log(p / q)``, weighted with p or q."""
    ratio = factors(log.arguments[0])
    both = {base for base, _ in ratio}
    return sorted(power for _, power in ratio) == [-1, 1] and any(power > 0 and base in both for base, power in weights)


RULE = Rule(
    "WN216",
    "divergence-by-hand",
    match_logarithm_product(
        _is_one,
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
