"""WN116 ratio-of-decays: a division by a cumulative product that has underflowed.

What it is
    a / cumprod(d), or a / exp(cumsum(log d)), as in decays of state-space models, in discounts and prefix products, where
    the product of many factors below 1 has become 0 or subnormal, or where one factor is exactly 0.

Why it breaks
    After some hundred factors the product is out of range at the lower end: 0, whose quotient is Inf or 0/0, or so small
    that the quotient is out of range at the upper end.

Example
    Bad::

        decay = torch.full((200,), 0.5)
        product = decay.cumprod(0)
        weight = product[-1] / product

    Good::

        decay = torch.full((200,), 0.5)
        total = decay.log().cumsum(0)
        weight = (total[-1] - total).exp()

Fix
    Sum the logarithms, subtract them, and take the exponential of the difference.

When it is fine
    Where the products stay within range.

References
    Mamba-2, segment sums: arXiv 2405.21060.
"""

from __future__ import annotations

import math

from whynan.expr import Expressions
from whynan.expr.structure import fits
from whynan.records import Argument, Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import expressions
from whynan.rules.facts import base, excess, forward_base, forward_value, number_text, result, value
from whynan.rules.intents import QUOTIENT, reformulation, where_zero
from whynan.rules.wording import exact_attempt

_WHY_ZERO = (
    "A product that holds a factor of 0 is 0 from there on, whatever its dtype. Keep the factors above 0, as by clamping what is "
    "subtracted from 1 below 1, or leave the places behind such a factor out of the ratio."
)
_WHY_SMALL = (
    "A product of many factors below 1 leaves the range of its dtype at the lower end. The ratio of two such products is the "
    "exponential of a difference of sums of logarithms, which stays within it."
)
_QUOTIENTS = ("div", "true_divide", "reciprocal")


def match(finding: Finding) -> Explanation | None:
    found, backward = expressions(finding), finding.phase == "backward"
    name = forward_base(finding) if backward else base(finding)
    if found is None or name not in _QUOTIENTS or finding.birth == "entered":
        return None
    by = "self" if name == "reciprocal" else "other"
    below = found.argument_term(found.middle, by)
    if below is None or not fits("(cumprod(...) | exp(A * cumsum(...) + ...)) ** B * ...", below):
        return None
    at = forward_value(finding, by) if backward else value(finding, by)
    exact = _holds_zero(found, by) if at == 0 else False
    text = None if at is None or abs(at) >= 1 else _of_zero(finding) if exact else _attempt(finding, at, exact)
    if text is None:
        return None
    if exact is not False:
        return Explanation(text, _WHY_ZERO if exact else f"{_WHY_ZERO} {_WHY_SMALL}", STRUCTURE)
    return Explanation(text, _WHY_SMALL, STRUCTURE)


def _of_zero(finding: Finding) -> str:
    above = 1.0 if base(finding) == "reciprocal" else value(finding, "self")
    if finding.phase == "backward" or above is None:
        return f"the derivative of a quotient divides by its denominator, a cumulative product with a factor of 0, and is {result(finding)}"
    return f"{number_text(above)} / 0 is {result(finding)}: a factor of the cumulative product is 0 here"


def _holds_zero(found: Expressions, by: str) -> bool | None:
    """Whether a factor of the cumulative product on the way to an operand is exactly 0; None where that is not known."""
    for operation in found.producers(found.middle, by):
        name = found.operator_name(operation)
        if name in ("cumprod", "cumsum"):
            return _among(found.recorded_argument(operation.event, "self", "input"), name)
        if name != "exp" and not found.is_copy(operation.event):
            return None
    return None


def _among(given: Argument | None, name: str) -> bool | None:
    """Whether 0 is among the factors, or -Inf among the logarithms of them, by the least and the greatest."""
    if given is None or given.min is None or given.max is None:
        return None
    if name == "cumsum":
        return given.min == -math.inf
    if 0 in (given.min, given.max):
        return True
    return None if given.min < 0 < given.max else False


def _attempt(finding: Finding, at: float, exact: bool | None) -> str | None:
    if finding.phase == "backward":
        return f"the derivative of a quotient divides by its denominator, a cumulative product that is {number_text(at)} here, and is {result(finding)}"
    if at == 0:
        above = 1.0 if base(finding) == "reciprocal" else value(finding, "self")
        became = "is 0" if exact is None else "has underflowed to 0"
        return f"{number_text(above)} / 0 is {result(finding)}: a cumulative product {became} here"
    attempt = exact_attempt(finding) if finding.birth == "overflow" else None
    if attempt is None:
        return None
    side = excess(attempt.result, finding.element.dtype, shown=False)
    return f"{attempt.words} {side}: a cumulative product has become {number_text(at)} here"


RULE = Rule(
    "WN116",
    "ratio-of-decays",
    match,
    fixes=(
        reformulation(
            "exp(-x) instead of 1 / exp(x), and the largest number where that exceeds it",
            "a / exp(x)",
            f"a * {where_zero('exp(-x) > finfo(x).max', 'exp({})', '-x', value='finfo(x).max', safe='0')}",
            exceeds="exp(-x) > finfo(x).max",
        ),
        *(
            reformulation(
                "the factors themselves instead of quotients of neighbours of their cumulative product",
                f"cumprod(x, {d})[{later}] / cumprod(x, {d})[{earlier}]",
                f"x[{later}]",
            )
            for d, later, earlier in (("-1", "..., 1:", "..., :-1"), ("0", "1:", ":-1"))
        ),
        *QUOTIENT,
    ),
)
