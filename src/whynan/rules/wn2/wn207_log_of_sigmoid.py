"""WN207 log-of-sigmoid: the logarithm of a sigmoid that is 0.

What it is
    log, log2 or log10 of a sigmoid, in whatever spelling, that is exactly 0.

Why it breaks
    In float32 sigmoid(-104) is 0: its logarithm is -Inf, where the exact one is -104.

Example
    Bad::

        margin = torch.tensor([-200.0, 1.0])
        loss = -torch.log(torch.sigmoid(margin)).mean()

    Good::

        margin = torch.tensor([-200.0, 1.0])
        loss = -torch.nn.functional.logsigmoid(margin).mean()

Fix
    Use logsigmoid, or binary_cross_entropy_with_logits, which takes logits.

When it is fine
    Where the -Inf is selected away, in backward too.

References
    torch.nn.functional.logsigmoid; the losses of DPO and of pairwise ranking.
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
    if at is None or not at[1].is_call("sigmoid") or of_infinity(finding):
        return None
    return Explanation(
        at_the_logarithm(finding, "sigmoid(x)", bounds(at[0], at[1].arguments[0])),
        "A sigmoid rounds to 0 where its operand is far below 0; logsigmoid is the same logarithm, and stays finite.",
        STRUCTURE,
    )


RULE = Rule(
    "WN207",
    "log-of-sigmoid",
    match,
    fixes=(
        reformulation("logsigmoid(x) instead of log(sigmoid(x))", "log(sigmoid(x))", "logsigmoid(x)"),
        reformulation("-softplus(-x) instead of log(sigmoid(x))", "log(sigmoid(x))", "-softplus(-x)"),
        reformulation(
            "logsigmoid(x) instead of the logarithm of a sigmoid by hand", "log(1 / (1 + exp(-x)))", "logsigmoid(x)"
        ),
        reformulation(
            "logsigmoid(2x) instead of the logarithm of a sigmoid by hand",
            "log(0.5 * (1 + tanh(x)))",
            "logsigmoid(2 * x)",
        ),
        *LOG,
    ),
)
