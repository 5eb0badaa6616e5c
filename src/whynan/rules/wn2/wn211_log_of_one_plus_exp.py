"""WN211 log-of-one-plus-exp: log(1 + exp(x)) of a large x.

What it is
    log(1 + exp(x)), or log1p(exp(x)), of an x whose exponential is infinite.

Why it breaks
    exp(88.8) exceeds the largest float32, and exp(11.1) the largest float16: the logarithm of Inf is Inf, where the
    exact value is x.

Example
    Bad::

        x = torch.tensor([100.0, 1.0])
        loss = torch.log(1 + torch.exp(x)).mean()

    Good::

        x = torch.tensor([100.0, 1.0])
        loss = torch.nn.functional.softplus(x).mean()

Fix
    Use softplus.

When it is fine
    Where the operand is bounded.

References
    torch.nn.functional.softplus; TorchFix TOR106.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import at_the_exponential, downstream, exponential_too_large
from whynan.rules.intents import BOUNDED, reformulation

if TYPE_CHECKING:
    from whynan.expr import Term
    from whynan.records import Finding


def _is_softplus(term: Term) -> bool:
    if not term.is_call("log"):
        return False
    of = term.arguments[0]
    return of.constant == 1 and len(of.parts) == 1 and of.parts[0][1] == 1 and of.parts[0][0].is_call("exp")


def match(finding: Finding) -> Explanation | None:
    found = exponential_too_large(finding)
    if found is None or not any(_is_softplus(term) for term in downstream(found)):
        return None
    return Explanation(
        at_the_exponential(finding, "log(1 + exp(x))"),
        "The logarithm takes the exponential back, but in between it has left the range; softplus(x) is the same function, "
        "and stays finite.",
        STRUCTURE,
    )


RULE = Rule(
    "WN211",
    "log-of-one-plus-exp",
    match,
    fixes=(
        reformulation("-logsigmoid(-x) instead of log(1 + exp(x))", "log(1 + exp(x))", "-logsigmoid(-x)"),
        reformulation("softplus(x) instead of log(1 + exp(x))", "log(1 + exp(x))", "softplus(x)"),
        *BOUNDED,
    ),
)
