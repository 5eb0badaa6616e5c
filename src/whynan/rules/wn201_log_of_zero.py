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
    found = value(finding, "self")
    result = said(finding.element.value)
    edge = -1.0 if name == "log1p" else 0.0
    if name in ("log", "log2", "log10", "log1p") and found == edge:
        return Explanation(
            f"{name}({said(edge)}) is {result}: {spelled(finding, 'self')} is {said(edge)} here",
            "A probability that underflowed or a count of 0 is the usual operand; the gradient 1/x is Inf there as well.",
        )
    if name == "logit" and found in (0.0, 1.0):
        return Explanation(
            f"logit({said(found)}) is {result}: {spelled(finding, 'self')} is {said(found)} here",
            "The logit is log(p / (1 - p)), which has a pole at both ends; a probability that rounds to 0 or 1 lies on one.",
        )
    behind, of = forward_value(finding, "self"), forward_base(finding)
    if of in ("log", "log2", "log10") and behind == 0 and name == "div":
        return Explanation(
            f"the derivative of {of} at 0 is 1/0: {spelled(finding, 'self')} is 0 here",
            "The gradient of a logarithm divides by its operand.",
            3,
        )
    if of == "logit" and behind in (0.0, 1.0):
        return Explanation(
            f"the derivative of logit at {said(behind)} is 1/(p (1 - p)) = 1/0: {spelled(finding, 'self')} is {said(behind)} here",
            "The gradient of a logit divides by p (1 - p), which is 0 at both ends.",
            3,
        )
    return None


RULE = Rule("WN201", "log-of-zero", match)
