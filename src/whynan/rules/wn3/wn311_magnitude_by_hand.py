"""WN311 magnitude-by-hand: the root of a square, or of a sum of two, that is 0.

What it is
    sqrt(x^2), or sqrt(a^2 + b^2), as of a complex number by its parts, in whatever spelling, where all are 0: silence.

Why it breaks
    The forward value is a healthy 0; the slope of the root is infinite there, that of the squares 0: their product is NaN.

Example
    Bad::

        x = torch.zeros(4, requires_grad=True)
        spectrum = torch.fft.rfft(x)
        magnitude = torch.sqrt(spectrum.real**2 + spectrum.imag**2)
        magnitude.sum().backward()

    Good::

        x = torch.zeros(4, requires_grad=True)
        magnitude = torch.fft.rfft(x).abs()
        magnitude.sum().backward()

Fix
    Use abs of the number, complex or real; of two tensors, torch.linalg.vector_norm of both in a stack.

When it is fine
    Where no gradient flows through it.

References
    torch.abs, whose gradient at 0 is 0.
"""

from __future__ import annotations

from whynan.rules.base import Rule
from whynan.rules.expressions import match_root
from whynan.rules.intents import MAGNITUDE, ROOT

RULE = Rule(
    "WN311",
    "magnitude-by-hand",
    match_root(
        "each(P * x ** 2)",
        "the sum of squares",
        "Where nothing sounds, or two points are one, the magnitude is a healthy 0 and its slope infinite. torch.abs, of complex "
        "numbers too, and torch.linalg.vector_norm have the same values, and a gradient of 0 there.",
    ),
    fixes=(*MAGNITUDE, *ROOT),
)
