"""WN505 weight-of-masked-logit: a weight of 0 times the log_softmax of a logit that is -Inf.

What it is
    sum(q log_softmax(x)), in whatever spelling: a cross entropy with targets that are probabilities, a contrastive loss
    whose own pairs are masked, where q is 0 and the logit -Inf.

Why it breaks
    The logarithm of a masked place is -Inf, and a weight of 0 does not remove it: 0 times -Inf is NaN.

Example
    Bad::

        scores = torch.zeros(1, 3)
        scores = scores.masked_fill(torch.tensor([[True, False, False]]), -inf)
        loss = F.cross_entropy(scores, torch.tensor([[0.0, 1.0, 0.0]]))

    Good::

        scores = torch.zeros(1, 3)
        scores = scores.masked_fill(torch.tensor([[True, False, False]]), torch.finfo(scores.dtype).min)
        loss = F.cross_entropy(scores, torch.tensor([[0.0, 1.0, 0.0]]))

Fix
    Mask with the dtype's most negative finite value, or take the places by index and not by a weight.

When it is fine
    Where the product is masked, in forward and in backward.

References
    torch.nn.functional.cross_entropy, targets that are probabilities.
"""

from __future__ import annotations

from whynan.expr import NormalForm
from whynan.expr.structure import fits
from whynan.rules.base import Rule
from whynan.rules.expressions import match_product
from whynan.rules.intents import guard


def _is_one(term: NormalForm) -> bool:
    if fits("(exp | softmax)(x) ** P * ...", term):
        return False
    return fits(
        "log_softmax(x) ** P * w ** Q * ...", term, where=lambda found: not fits("log_softmax(x)", found.terms["w"])
    )


RULE = Rule(
    "WN505",
    "weight-of-masked-logit",
    match_product(
        lambda _, term: _is_one(term),
        "a weight times the log_softmax of a logit of -Inf",
        "A weight of 0 does not leave a masked place out of a loss: 0 times -Inf has no value. With the dtype's most negative "
        "finite value as mask it does.",
    ),
    fixes=(
        guard(
            "the most negative finite number instead of a logit of -Inf",
            "cross_entropy(x, t, weight=w, ignore_index=i, reduction=r, label_smoothing=s)",
            "cross_entropy(clamp(x, min=finfo(x).min), t, weight=w, ignore_index=i, reduction=r, label_smoothing=s)",
        ),
        guard(
            "the most negative finite number instead of a logit of -Inf",
            "t * log_softmax(x, d)",
            "t * log_softmax(clamp(x, min=finfo(x).min), d)",
        ),
    ),
)
