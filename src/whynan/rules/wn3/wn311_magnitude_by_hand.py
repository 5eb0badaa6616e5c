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

from whynan.expr import Term
from whynan.rules.base import Rule
from whynan.rules.expressions import factors, match_root
from whynan.rules.intents import MAGNITUDE, ROOT


def _is_sum_of_squares(term: Term) -> bool:
    """The parts of a complex number are elements of one tensor, and the sum of their squares twice one square."""
    if term.constant:
        return False
    parts = term.parts if term.kind == "sum" else ((term, 1.0),)
    return all(part.kind == "product" and factor > 0 and _is_square(part) for part, factor in parts)


def _is_square(term: Term) -> bool:
    return all(power == 2 for _, power in factors(term))


RULE = Rule(
    "WN311",
    "magnitude-by-hand",
    match_root(
        _is_sum_of_squares,
        "the sum of squares",
        "Where nothing sounds, or two points are one, the magnitude is a healthy 0 and its slope infinite. torch.abs, of complex "
        "numbers too, and torch.linalg.vector_norm have the same values, and a gradient of 0 there.",
    ),
    fixes=(*MAGNITUDE, *ROOT),
)
