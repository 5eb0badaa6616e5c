"""WN215 log-of-cosh: log(cosh(x)) of a large x.

What it is
    The logarithm of a hyperbolic cosine, in whatever spelling, that is infinite.

Why it breaks
    cosh(89.5) exceeds the largest float32: its logarithm is Inf, where the exact value is near |x|.

Example
    Bad::

        error = torch.tensor([100.0, 1.0])
        loss = torch.log(torch.cosh(error)).mean()

    Good::

        error = torch.tensor([100.0, 1.0]).abs()
        loss = (error + torch.nn.functional.softplus(-2 * error) - 0.6931471805599453).mean()

Fix
    Write it as |x| + softplus(-2|x|) - log(2).

When it is fine
    Where the operand is bounded.

References
    The log-cosh loss.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_exponential
from whynan.rules.intents import reformulation

RULE = Rule(
    "WN215",
    "log-of-cosh",
    match_exponential(
        "log(A * exp(x) + A * exp(-x))",
        "log(cosh(x))",
        "The logarithm takes the exponential back, but in between it has left the range; |x| + softplus(-2|x|) - log(2) is the "
        "same function, and stays finite.",
    ),
    fixes=(
        *(
            reformulation(
                f"|x| + softplus(-2|x|) - log(2) instead of {pattern}, but beside 0",
                pattern,
                "where(abs(x) > 5, abs(x) + softplus(-2 * abs(x)) - 0.6931471805599453, log(cosh(clamp(x, min=-5, max=5))))",
                magnitude="abs(x)",
            )
            for pattern in ("log(cosh(x))", "log((exp(x) + exp(-x)) / 2)", "log(0.5 * exp(x) + 0.5 * exp(-x))")
        ),
        reformulation(
            "|x| + softplus(-2|x|) - log(2) instead of log(cosh(x))",
            "log(cosh(x))",
            "abs(x) + softplus(-2 * abs(x)) - 0.6931471805599453",
            magnitude="abs(x)",
        ),
    ),
)
