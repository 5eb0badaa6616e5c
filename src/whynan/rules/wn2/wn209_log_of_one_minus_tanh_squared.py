"""WN209 log-of-one-minus-tanh-squared: the logarithm of 1 - tanh(x)², where the tanh is 1.

What it is
    log(1 - tanh(x)²), the correction of a squashed policy, in whatever spelling, where the tanh is exactly 1 or -1.

Why it breaks
    In float32 tanh(9.1) is 1: the difference is 0, and its logarithm -Inf.

Example
    Bad::

        action = torch.tensor([12.0, 0.5])
        correction = torch.log(1 - torch.tanh(action) ** 2).sum()

    Good::

        action = torch.tensor([12.0, 0.5])
        correction = 2 * (0.6931471805599453 - action - torch.nn.functional.softplus(-2 * action)).sum()

Fix
    Write it as 2 (log(2) - x - softplus(-2x)).

When it is fine
    Where the -Inf is selected away, in backward too.

References
    Soft actor-critic: Haarnoja et al., arXiv 1812.05905, appendix C.
"""

from __future__ import annotations

from whynan.expr import Term
from whynan.expr.normal import scale
from whynan.rules.base import Rule
from whynan.rules.expressions import factors, match_logarithm
from whynan.rules.intents import LOG, reformulation


def _operand(term: Term) -> Term | None:
    """The x of ``1 - tanh(x) ** 2``, also as a product."""
    if _is_product(term):
        return next(base.arguments[0].arguments[0] for base, _ in factors(term) if base.kind == "sum")
    if term.constant != 1 or len(term.parts) != 1 or term.parts[0][1] != -1:
        return None
    ((inner, power), *rest) = factors(term.parts[0][0])
    return inner.arguments[0] if not rest and power == 2 and inner.is_call("tanh") else None


def _is_product(term: Term) -> bool:
    """``(1 - tanh(x)) (1 + tanh(x))``: half of the second is a sigmoid, of 2x."""
    parts = [base for base, power in factors(term) if power == 1]
    if len(parts) != len(factors(term)) or len(parts) != 2:
        return False
    below, above = sorted(parts, key=lambda part: part.is_call("sigmoid"))
    if not above.is_call("sigmoid") or below.constant != 1 or [factor for _, factor in below.parts] != [-1]:
        return False
    return below.arguments[0].is_call("tanh") and above.arguments[0] == scale(2, below.arguments[0].arguments[0])


RULE = Rule(
    "WN209",
    "log-of-one-minus-tanh-squared",
    match_logarithm(
        _operand,
        "1 - tanh(x)²",
        "A tanh rounds to 1 where its operand is about 9 in float32, and nothing is left of the difference; "
        "2 (log(2) - x - softplus(-2x)) is the same logarithm, and stays finite.",
    ),
    fixes=(
        *(
            reformulation(
                f"2 (log(2) - |x| - softplus(-2|x|)) instead of {pattern}, but beside 0",
                pattern,
                "where(abs(x) > 1, 2 * (0.6931471805599453 - abs(x) - softplus(-2 * abs(x))), "
                "log(1 - tanh(clamp(x, min=-1, max=1)) ** 2))",
                magnitude="abs(x)",
            )
            for pattern in ("log(1 - tanh(x) ** 2)", "log((1 - tanh(x)) * (1 + tanh(x)))")
        ),
        reformulation(
            "2 (log(2) - x - softplus(-2x)) instead of log(1 - tanh(x)**2)",
            "log(1 - tanh(x) ** 2)",
            "2 * (0.6931471805599453 - x - softplus(-2 * x))",
        ),
        *LOG,
    ),
)
