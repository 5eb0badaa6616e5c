"""WN307 root-of-magnitude: the root of |x| at 0.

What it is
    sqrt(|x|), as in a signed square root, at x = 0.

Why it breaks
    The derivative of the root is Inf at 0, that of |x| is 0 there: Inf times 0 is NaN.

Example
    Bad::

        x = torch.tensor([0.0, 4.0], requires_grad=True)
        y = torch.sign(x) * torch.sqrt(x.abs())
        y.sum().backward()

    Good::

        x = torch.tensor([0.0, 4.0], requires_grad=True)
        y = x * torch.rsqrt(x.abs() + 1e-6)
        y.sum().backward()

Fix
    Write a signed root as x * rsqrt(|x| + eps).

When it is fine
    Where no gradient flows through it.

References
    Signed square root of bilinear pooling: Lin et al., ICCV 2015.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_root
from whynan.rules.intents import ROOT, epsilon

RULE = Rule(
    "WN307",
    "root-of-magnitude",
    match_root(
        "abs(x)",
        "|x|",
        "The slope of a root is infinite at 0; a gradient of 0 that meets it, as by the sign of 0, makes NaN. A small number "
        "added to |x| inside the root keeps the slope finite: x rsqrt(|x| + eps) for the signed square root.",
    ),
    fixes=(
        *ROOT,
        epsilon(
            "x rsqrt(|x| + 1e-12) instead of the signed root", "sign(x) * sqrt(abs(x))", "x * rsqrt(abs(x) + 1e-12)"
        ),
    ),
)
