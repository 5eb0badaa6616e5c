"""WN504 entropy-of-masked-logits: p log(p) of a softmax whose logits are masked with -Inf.

What it is
    -sum(p log(p)) where p is the softmax and log(p) the log_softmax of the same logits, or the logarithm of that softmax, in
    whatever spelling, and a logit is -Inf.

Why it breaks
    A masked place has p = 0 and log(p) = -Inf, and 0 times -Inf is NaN, though the limit of p log(p) is 0.

Example
    Bad::

        logits = torch.zeros(1, 3).masked_fill(torch.tensor([[False, False, True]]), -inf)
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1)

    Good::

        logits = torch.zeros(1, 3)
        logits = logits.masked_fill(torch.tensor([[False, False, True]]), torch.finfo(logits.dtype).min)
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1)

Fix
    Mask with the dtype's most negative finite value: p is 0 there as well, and so is the product.

When it is fine
    Where the product is masked, in forward and in backward.

References
    torch.distributions.Categorical.entropy, which clamps the logits in the same way.
"""

from __future__ import annotations

from typing import Final

from whynan.expr.structure import fits
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import (
    downstream,
    expressions,
    is_exact_zero,
    logarithm_of_zero,
    logarithm_product_message,
    product_message,
    zero_times_infinity,
)
from whynan.rules.facts import INF, forward_base, is_nan, row
from whynan.rules.intents import LOG_OF_ONE, guard

_MASKED: Final = "a softmax with a logit of -Inf"
_WHY: Final = (
    "A place that is masked with -Inf has the probability 0 and the logarithm -Inf, and their product has no value. With the "
    "dtype's most negative finite value as mask both are finite, and the product is 0."
)
_ENTROPY: Final = "log_softmax(x) ** P * (exp | softmax)(x | log_softmax(x)) ** Q * ..."
"""The probabilities may be a softmax of their own, or the exponential of their logarithm."""
_PROBABILITIES: Final = ("_softmax", "exp")
_ARRIVING: Final = ("grad_output", "self")
_MADE: Final = ("output", "other")


def _is_logarithm(finding: Finding) -> bool:
    """Whether it is the logarithm of the 0 that a softmax gives of -Inf, multiplied with that softmax afterwards."""
    at = logarithm_of_zero(finding)
    if at is None or not fits("softmax(x)", at[1]) or not is_exact_zero(finding):
        return False
    return fits("log(x) ** P * p ** Q * ...", *downstream(at[0]), p=at[1])


def match(finding: Finding) -> Explanation | None:
    at = zero_times_infinity(finding)
    if at is not None and fits(_ENTROPY, at[1]):
        return Explanation(product_message(finding, f"p log(p) of {_MASKED}"), _WHY, STRUCTURE)
    if _is_logarithm(finding):
        return Explanation(logarithm_product_message(finding, f"p log(p) of {_MASKED}"), _WHY, STRUCTURE)
    return _of_the_probabilities(finding)


def _of_the_probabilities(finding: Finding) -> Explanation | None:
    """In the derivative of the probabilities: what arrives there is log(p), which is -Inf where p is 0."""
    found = expressions(finding)
    if found is None or not is_nan(finding) or forward_base(finding) not in _PROBABILITIES:
        return None
    arriving, made = row(finding, *_ARRIVING), row(finding, *_MADE)
    if arriving is None or made is None or made[0] != 0 or not {INF, -INF} & {*arriving}:
        return None
    if not fits(_ENTROPY, *downstream(found)):
        return None
    return Explanation(
        f"the derivative of {forward_base(finding).removeprefix('_')} multiplies p by the log(p) that arrives, 0 × Inf where p is 0: p log(p) of "
        f"{_MASKED}",
        _WHY,
        STRUCTURE,
    )


RULE = Rule(
    "WN504",
    "entropy-of-masked-logits",
    match,
    fixes=(
        guard(
            "a logarithm of 0 where the probability is 0",
            "softmax(x, d) * log_softmax(x, d)",
            "softmax(x, d) * where(log_softmax(x, d) < finfo(x).min, 0, log_softmax(x, d))",
            logarithm="log_softmax(x, d)",
        ),
        guard("a logarithm of 0 where the probability is 0", "exp(l) * l", "exp(l) * where(l < finfo(l).min, 0, l)"),
        guard("1 instead of 0 in the logarithm of x log(x)", "x * log(x)", "x * log(where(x == 0, 1, x))"),
        *LOG_OF_ONE,
    ),
)
