"""WN208 log-of-one-minus-sigmoid: the logarithm of 1 - sigmoid(x), where the sigmoid is 1.

What it is
    log(1 - p) of a p that is a sigmoid, in whatever spelling, and exactly 1.

Why it breaks
    In float32 sigmoid(17) is 1, as there is no number between 1 - 6e-8 and 1: 1 - p is 0, and its logarithm -Inf,
    where the exact one is -17.

Example
    Bad::

        logits = torch.tensor([20.0, 1.0])
        loss = -torch.log(1 - torch.sigmoid(logits)).mean()

    Good::

        logits = torch.tensor([20.0, 1.0])
        loss = -torch.nn.functional.logsigmoid(-logits).mean()

Fix
    Use logsigmoid(-x), or binary_cross_entropy_with_logits, which takes logits.

When it is fine
    Where the -Inf is selected away, in backward too.

References
    torch.nn.functional.logsigmoid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import at_the_logarithm, bounds, logarithm_of_zero
from whynan.rules.intents import LOG, reformulation

if TYPE_CHECKING:
    from whynan.expr import Term
    from whynan.records import Finding


def _is_complement(term: Term) -> bool:
    parts = term.parts
    return term.constant == 1 and len(parts) == 1 and parts[0][1] == -1 and parts[0][0].is_call("sigmoid")


def _operand(term: Term) -> Term:
    return term.parts[0][0].arguments[0]


def match(finding: Finding) -> Explanation | None:
    at = logarithm_of_zero(finding)
    if at is None or not _is_complement(at[1]):
        return None
    return Explanation(
        at_the_logarithm(finding, "1 - sigmoid(x)", bounds(at[0], _operand(at[1]))),
        "A sigmoid rounds to 1 long before its operand is large (17 in float32), and nothing is left of the difference; "
        "logsigmoid(-x) is the same logarithm, and stays finite.",
        STRUCTURE,
    )


RULE = Rule(
    "WN208",
    "log-of-one-minus-sigmoid",
    match,
    fixes=(
        reformulation("logsigmoid(-x) instead of log(1 - sigmoid(x))", "log(1 - sigmoid(x))", "logsigmoid(-x)"),
        reformulation("-softplus(x) instead of log(1 - sigmoid(x))", "log(1 - sigmoid(x))", "-softplus(x)"),
        *LOG,
    ),
)
