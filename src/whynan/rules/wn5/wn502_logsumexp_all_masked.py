"""WN502 logsumexp-all-masked: the derivative of a logsumexp whose operands are all -Inf.

What it is
    logsumexp, logaddexp or logcumsumexp of nothing but -Inf is -Inf; a gradient flows through it.

Why it breaks
    The derivative is exp(x - logsumexp(x)), and -Inf - (-Inf) is NaN.

Example
    Bad::

        scores = torch.zeros(2, 3, requires_grad=True)
        mask = torch.tensor([[True, True, True], [False, True, True]])
        total = (scores + torch.where(mask, -inf, 0.0)).logsumexp(-1)
        total.clamp_min(-100).sum().backward()

    Good::

        scores = torch.zeros(2, 3, requires_grad=True)
        mask = torch.tensor([[True, True, True], [False, True, True]])
        total = (scores + torch.where(mask, torch.finfo(scores.dtype).min / 2, 0.0)).logsumexp(-1)
        total.clamp_min(-100).sum().backward()

Fix
    Use a finite value for the mask, such as half of the dtype's most negative number, or skip the row.

When it is fine
    Where no gradient flows through it.

References
    torch.logsumexp.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.facts import INF, base, forward_base, is_nan, value
from whynan.rules.intents import guard
from whynan.rules.wording import forward_operand_source

_SUMS = {"logsumexp": "every value of its row is -Inf", "logaddexp": "both operands are -Inf"}


def match(finding: Finding) -> Explanation | None:
    of = forward_base(finding)
    if of not in _SUMS or base(finding) != "sub" or not is_nan(finding):
        return None
    if value(finding, "self") != -INF or value(finding, "other") != -INF:
        return None
    name = forward_operand_source(finding, "self")
    return Explanation(
        f"the derivative of {of}{f' of {name}' if name else ''} is exp(x - {of}), and -Inf - (-Inf) is NaN: {_SUMS[of]}",
        "The sum of no probability at all has the logarithm -Inf, and a share of nothing has no value.",
        STRUCTURE,
    )


RULE = Rule(
    "WN502",
    "logsumexp-all-masked",
    match,
    fixes=(
        *(
            guard(
                "the most negative finite number instead of -Inf",
                f"{name}(x, d, k)",
                f"{name}(clamp(x, min=finfo(x).min), d, k)",
            )
            for name in ("logsumexp", "logcumsumexp")
        ),
        guard(
            "the most negative finite number instead of -Inf",
            "logaddexp(a, b)",
            "logaddexp(clamp(a, min=finfo(a).min), clamp(b, min=finfo(b).min))",
        ),
    ),
)
