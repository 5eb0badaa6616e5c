"""WN212 log-of-sum-of-exp: log(sum(exp(x))) of a large x.

What it is
    The logarithm of a sum, or of a running sum, of exponentials, in whatever spelling: one of them or their sum is
    infinite, or all of them are 0.

Why it breaks
    exp(88.8) exceeds the largest float32, and exp(11.1) the largest float16: the logarithm of Inf is Inf, where the
    exact value is near the greatest x.

Example
    Bad::

        scores = torch.tensor([[100.0, 1.0]])
        z = torch.log(torch.exp(scores).sum(-1))

    Good::

        scores = torch.tensor([[100.0, 1.0]])
        z = torch.logsumexp(scores, -1)

Fix
    Use logsumexp.

When it is fine
    Where the operands are bounded.

References
    torch.logsumexp; TorchFix TOR108.
"""

from __future__ import annotations

from typing import Final

from whynan.expr.structure import fits, operand
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import (
    bounds,
    downstream,
    exponential_message,
    exponential_too_large,
    is_exact_zero,
    logarithm_message,
    logarithm_of_zero,
    sum_of_exponentials_too_large,
)
from whynan.rules.intents import reformulation


def _vanished(finding: Finding) -> Explanation | None:
    """Of a logarithm of 0: a sum of exponentials that are all 0 in the dtype, though no operand is -Inf."""
    at = logarithm_of_zero(finding)
    x = None if at is None else operand("(sum | cumsum)(exp(x), ...)", at[1])
    if at is None or x is None or is_exact_zero(finding):
        return None
    form = "logsumexp" if at[1].name == "sum" else "logcumsumexp"
    return Explanation(
        logarithm_message(finding, f"{at[1].name}(exp(x))", bounds(at[0], x)),
        f"Exponentials far below 0 are all 0 in the dtype; {form} subtracts the greatest operand first, and stays finite.",
        STRUCTURE,
    )


def match(finding: Finding) -> Explanation | None:
    found = exponential_too_large(finding) or sum_of_exponentials_too_large(finding)
    if found is None:
        return _vanished(finding)
    after = downstream(found)
    running = fits("log(cumsum(exp(x), ...))", *after)
    if not running and not fits("A * log(sum(exp(x))) + ... | log(sum(exp(x))) ** A * ...", *after):
        return None
    return Explanation(
        exponential_message(finding, "log(cumsum(exp(x)))" if running else "log(sum(exp(x)))"),
        f"The logarithm takes the exponentials back, but in between they have left the range; {'logcumsumexp' if running else 'logsumexp'} subtracts the greatest "
        "first, and stays finite.",
        STRUCTURE,
    )


_GREATEST: Final = "detach(amax(x, dim=d, keepdim=True))"


RULE = Rule(
    "WN212",
    "log-of-sum-of-exp",
    match,
    fixes=(
        reformulation("logsumexp(x) instead of log(sum(exp(x)))", "log(sum(exp(x), d, k))", "logsumexp(x, d, k)"),
        *(
            reformulation(
                f"the maximum taken out of log({reduced}(exp(x)))",
                f"log({reduced}(exp(x), d, k))",
                f"log({reduced}(exp(x - {_GREATEST}), dim=d, keepdim=k)) + amax({_GREATEST}, dim=d, keepdim=k)",
                greatest=_GREATEST,
            )
            for reduced in ("sum", "mean")
        ),
    ),
)
