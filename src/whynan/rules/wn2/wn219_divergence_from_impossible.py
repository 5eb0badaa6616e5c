"""WN219 divergence-from-impossible: kl_div of a log-probability of -Inf where the target is 0.

What it is
    target * (log(target) - input), as torch.nn.functional.kl_div computes it, where the input is -Inf and the target 0.

Why it breaks
    kl_div leaves out log(0) of the target, but not the product of the target with the input: 0 times -Inf is NaN, though
    what is impossible in both has no part in the divergence.

Example
    Bad::

        log_q = torch.tensor([0.0, -inf])
        divergence = F.kl_div(log_q, torch.tensor([1.0, 0.0]), reduction="sum")

    Good::

        log_q = torch.tensor([0.0, -inf]).clamp_min(-87)
        divergence = F.kl_div(log_q, torch.tensor([1.0, 0.0]), reduction="sum")

Fix
    Keep the log-probabilities finite: clamp them, or mask logits with the dtype's most negative finite value before the
    log_softmax.

When it is fine
    Where such places are taken out by an index, before the divergence.

References
    torch.nn.functional.kl_div.
"""

from __future__ import annotations

from whynan.expr import Expressions, NormalForm
from whynan.expr.structure import fits, matches
from whynan.rules.base import Rule
from whynan.rules.expressions import downstream, match_product
from whynan.rules.intents import guard


def _is_one(found: Expressions, product: NormalForm) -> bool:
    """Whether ``p log(p) - p x`` was computed from the product, which is the second of them."""
    return any(
        fits("A * p ** B * log(p) ** C * ... - A * q", *downstream(found), p=factor.terms["p"], q=product)
        for factor in matches("p ** A * ...", product)
    )


RULE = Rule(
    "WN219",
    "divergence-from-impossible",
    match_product(
        _is_one,
        "target × (log(target) - input)",
        "What is impossible by the target and by the input has no part in the divergence, but 0 times -Inf has no value. Clamp the "
        "log-probabilities, or mask the logits with a finite number.",
    ),
    fixes=(
        guard(
            "the most negative finite number instead of -Inf",
            "kl_div(x, y, reduction=r, log_target=t)",
            "kl_div(clamp(x, min=finfo(x).min), y, reduction=r, log_target=t)",
        ),
        guard(
            "the most negative finite number instead of -Inf",
            "xlogy(x, x) - x * y",
            "xlogy(x, where(x == 0, 1, x)) - x * clamp(y, min=finfo(y).min)",
        ),
    ),
)
