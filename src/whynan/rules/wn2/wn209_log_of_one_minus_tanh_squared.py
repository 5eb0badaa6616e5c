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

from whynan.rules.base import Rule
from whynan.rules.expressions import match_logarithm
from whynan.rules.intents import LOG, reformulation

RULE = Rule(
    "WN209",
    "log-of-one-minus-tanh-squared",
    match_logarithm(
        "1 - tanh(x) ** 2 | A * (1 - tanh(x)) * (1 + tanh(x))",
        "1 - tanh(x)²",
        "A tanh rounds to 1 where its operand is about 9 in float32, and nothing is left of the difference; "
        "2 (log(2) - x - softplus(-2x)) is the same logarithm, and stays finite.",
    ),
    fixes=(
        reformulation(
            "2 (log(2) - x - softplus(-2x)) instead of log(1 - tanh(x)**2)",
            "log(1 - tanh(x) ** 2)",
            "2 * (0.6931471805599453 - x - softplus(-2 * x))",
        ),
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
        *LOG,
    ),
)
