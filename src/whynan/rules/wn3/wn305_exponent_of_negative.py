"""WN305 exponent-of-negative: the gradient of an exponent whose base is negative.

What it is
    x ** p is finite for a negative x and a whole p, and p is learned.

Why it breaks
    The derivative by p is x ** p * log(x), and the logarithm of a negative number is NaN.

Example
    Bad::

        x = torch.tensor([-2.0, 2.0])
        p = torch.tensor([2.0], requires_grad=True)
        loss = x.pow(p).sum()
        loss.backward()

    Good::

        x = torch.tensor([-2.0, 2.0])
        p = torch.tensor([2.0], requires_grad=True)
        loss = x.abs().clamp(min=1e-6).pow(p).sum()
        loss.backward()

Fix
    Bound the base above 0 before the power is taken, or keep the exponent constant.

When it is fine
    Where the exponent needs no gradient.

References
    torch.pow; GeM pooling: Radenovic et al., arXiv 1711.02512.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, Explanation, Rule
from whynan.rules.facts import base, forward_base, is_nan, number_text, value
from whynan.rules.intents import guard
from whynan.rules.wording import forward_operand_source, named_value_text


def match(finding: Finding) -> Explanation | None:
    if forward_base(finding) not in ("pow", "float_power") or base(finding) != "log" or not is_nan(finding):
        return None
    found = value(finding, "self")
    if found is None or not found < 0:
        return None
    return Explanation(
        f"the derivative of x ** p by p is x ** p × log(x), and log({number_text(found)}) is NaN"
        f"{named_value_text(forward_operand_source(finding, 'self'), 'negative')}",
        "The power itself is finite where the exponent is a whole number; between whole numbers it has no real value, "
        "and so no slope.",
        DERIVATIVE,
    )


RULE = Rule(
    "WN305",
    "exponent-of-negative",
    match,
    fixes=(
        guard(
            "no gradient of the exponent where the base is negative",
            "x ** p",
            "where(x < 0, x ** detach(p), where(x < 0, 1, x) ** p)",
        ),
    ),
)
