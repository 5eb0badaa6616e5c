"""WN201 log-of-zero: the logarithm of zero.

What it is
    log, log2 or log10 meets exactly 0 (log1p exactly -1).

Why it breaks
    The logarithm has a pole there: -Inf, and the gradient 1/x is Inf.

Example
    Bad::

        loss = -torch.log(torch.softmax(logits, -1))

    Good::

        loss = -torch.log_softmax(logits, -1)

Fix
    Compute the logarithm of the whole expression (log_softmax, logsigmoid, logsumexp); else clamp the operand
    to the dtype's smallest normal number.

When it is fine
    Where the -Inf is selected away, in backward too.

References
    torch docs: log_softmax, logsigmoid.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, forward_base, forward_value, said, spelled, value

if TYPE_CHECKING:
    from whynan.records import Finding


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    zero = -1.0 if name == "log1p" else 0.0
    if name in ("log", "log2", "log10", "log1p") and value(finding, "self") == zero:
        return Explanation(
            f"{name}({said(zero)}) is -Inf: {spelled(finding, 'self')} is {said(zero)} here",
            "A probability that underflowed or a count of 0 is the usual operand; the gradient 1/x is Inf there as well.",
        )
    if name == "div" and forward_base(finding) in ("log", "log2", "log10") and forward_value(finding, "self") == 0:
        return Explanation(
            f"the derivative of {forward_base(finding)} at 0 is 1/0: {spelled(finding, 'self')} is 0 here",
            "The gradient of a logarithm divides by its operand.",
            3,
        )
    return None


RULE = Rule("WN201", "log-of-zero", match)
