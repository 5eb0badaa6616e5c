"""WN503 softmax-by-hand: a softmax that is written out, of large logits.

What it is
    exp(x) / sum(exp(x)), in whatever spelling, where an exponential or the sum is infinite, or all of a row are 0.

Why it breaks
    exp(88.8) exceeds the largest float32, and exp(11.1) the largest float16: the quotient of two infinities has no
    value. A sum that is infinite by itself makes finite numbers wrong: each is 0 then.

Example
    Bad::

        scores = torch.tensor([[100.0, 1.0]])
        attention = torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)

    Good::

        scores = torch.tensor([[100.0, 1.0]])
        attention = torch.softmax(scores, -1)

Fix
    Use softmax.

When it is fine
    Where the logits are bounded.

References
    torch.nn.functional.softmax.
"""

from __future__ import annotations

from typing import Final

from whynan.expr.structure import fits
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import (
    exponential_message,
    exponential_too_large,
    is_exact_zero,
    outcomes,
    quotient_message,
    quotients_by_zero,
    sum_of_exponentials_too_large,
)
from whynan.rules.facts import base
from whynan.rules.intents import BOUNDED, SOFTMAX

_OF_SUM: Final = "What is divided by an infinite sum is 0"


def _vanished(finding: Finding) -> str | None:
    """The sentence of a softmax whose exponentials are all 0, though no logit is -Inf."""
    at = quotients_by_zero(finding)
    if at is None or not fits("softmax(x)", at[1][0]) or is_exact_zero(finding):
        return None
    return quotient_message(finding, "the sum of the exponentials of a softmax that is written out")


def match(finding: Finding) -> Explanation | None:
    found = exponential_too_large(finding) or sum_of_exponentials_too_large(finding)
    if found is None and (text := _vanished(finding)) is not None:
        return Explanation(
            text,
            "The exponentials of a row that lies far below 0 are all 0 in the dtype; softmax subtracts the greatest of the row "
            "first, and one exponential is 1.",
            STRUCTURE,
        )
    if found is None or not fits("softmax(x) ** A * ...", *outcomes(found)):
        return None
    return Explanation(
        exponential_message(finding, "a softmax that is written out"),
        f"{_OF_SUM if base(finding) == 'sum' else 'Inf / Inf is NaN'}; softmax subtracts the greatest of a row first, and is finite for all finite logits.",
        STRUCTURE,
    )


RULE = Rule(
    "WN503",
    "softmax-by-hand",
    match,
    fixes=(
        *SOFTMAX,
        *BOUNDED,
    ),
)
