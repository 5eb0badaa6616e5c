"""WN309 mean-of-powers: the root of a mean of powers that is 0.

What it is
    mean(x^p)^(1/p), the generalised mean of GeM pooling, in whatever spelling, of elements that are all 0.

Why it breaks
    The derivative of y^(1/p) is infinite at 0, and that of x^p is 0 there: their product is NaN.

Example
    Bad::

        x = torch.zeros(2, 4, requires_grad=True)
        pooled = x.pow(3).mean(1).pow(1 / 3)
        pooled.sum().backward()

    Good::

        x = torch.zeros(2, 4, requires_grad=True)
        pooled = x.clamp(min=1e-6).pow(3).mean(1).pow(1 / 3)
        pooled.sum().backward()

Fix
    Clamp the elements to a small number before the power is taken.

When it is fine
    Where no gradient flows through it.

References
    GeM pooling: Radenovic et al., arXiv 1711.02512.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_root
from whynan.rules.intents import ROOT, epsilon, greatest, reformulation, scaled, times_greatest, where_zero


def _powers(reduced: str) -> str:
    return f"{reduced}(({scaled('x')}) ** p, dim=d, keepdim=k)"


def _mended(reduced: str) -> str:
    """The mean or the sum of the row over its largest magnitude, whose root is 0 where it is."""
    powers = _powers(reduced)
    return times_greatest(where_zero(f"{powers} == 0", "{} ** q", powers), "x")


RULE = Rule(
    "WN309",
    "mean-of-powers",
    match_root(
        "sum(x ** P)",
        "the mean of powers",
        "Where all elements are 0 the mean is a healthy 0, and the slope of the outer power infinite: Inf, times the slope of "
        "the inner one, which is 0, is NaN. Keep the elements away from 0 before the first power is taken.",
        where=lambda found: found.numbers["P"] > 1 and found.numbers["P"] != 2,
    ),
    fixes=(
        *(
            reformulation(
                "the row over its largest magnitude, times that, and 0 where that is 0",
                f"{reduced}(x ** p, d, k) ** q",
                _mended(reduced),
                scale=greatest("x"),
                powers=_powers(reduced),
            )
            for reduced in ("mean", "sum")
        ),
        *ROOT,
        epsilon(
            "elements of at least 1e-6",
            "mean(x ** p, d, k) ** q",
            "mean(clamp(x, min=1e-6) ** p, dim=d, keepdim=k) ** q",
        ),
    ),
)
