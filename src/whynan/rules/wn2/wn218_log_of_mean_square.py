"""WN218 log-of-mean-square: the logarithm of a mean of squares that is 0.

What it is
    log10(mse) or log10(1 / mse), as in a PSNR, log10(signal / noise), or the logarithm of a power spectrum, in
    whatever spelling, where all the squares are 0.

Why it breaks
    Of a perfect fit, or of silence, every square is 0, and the logarithm has a pole there, as the quotient has that
    divides by them.

Example
    Bad::

        image = torch.ones(3)
        psnr = -10 * torch.log10(F.mse_loss(image, image.clone()))

    Good::

        image = torch.ones(3)
        psnr = -10 * torch.log10(F.mse_loss(image, image.clone()) + 1e-10)

Fix
    Add a small number to the mean of the squares, in the logarithm or in the denominator.

When it is fine
    Where an infinite ratio is meant: a metric that nothing is computed from.

References
    torchmetrics, peak signal-to-noise ratio.
"""

from __future__ import annotations

from typing import Final

from whynan.expr import NormalForm
from whynan.expr.structure import fits
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import (
    divisors,
    logarithm_message,
    logarithm_of_zero,
    quotient_message,
    quotients_by_zero,
)
from whynan.rules.intents import LARGE_QUOTIENT, LOG, epsilon

_WEIGHTED: Final = "sum(w * x ** 2) | matmul(A * x ** 2, ...) | matmul(w, A * x ** 2, ...)"
"""One weighted by a bank of filters."""
_ENERGY: Final = f"(sum(x ** 2) | {_WEIGHTED})"


def match(finding: Finding) -> Explanation | None:
    if (at := logarithm_of_zero(finding)) is not None:
        if not fits(f"{_ENERGY} ** A * ...", at[1]):
            return None
        what = _called(at[0].argument_term(at[0].middle, "self") or at[1])
        return _told(logarithm_message(finding, what, ""), what)
    ratio = quotients_by_zero(finding)
    energies = [divisor for divisor in divisors(finding) if fits(_ENERGY, divisor)]
    # the logarithm of the ratio that the birth is, and not of something else that was made of it
    if ratio is None or not any(fits("log(x ** N * ...)", *ratio[1], x=energy) for energy in energies):
        return None
    what = _called(ratio[0].argument_term(ratio[0].middle, "other", "self") or energies[0])
    return _told(quotient_message(finding, what), what)


def _called(term: NormalForm) -> str:
    """What a sum of squares is: a mean has a factor below 1, and a bank of filters weights."""
    if fits("P * x", term, where=lambda found: found.numbers["P"] < 1):
        return "the mean of the squares"
    return "a weighted sum of squares" if fits(f"A * ({_WEIGHTED} | matmul(...))", term) else "the sum of the squares"


def _told(message: str, what: str) -> Explanation:
    return Explanation(
        message,
        "A perfect fit, or silence, has no square that is not 0, and the logarithm of 0 is infinite. Add a small number to "
        f"{what}.",
        STRUCTURE,
    )


RULE = Rule(
    "WN218",
    "log-of-mean-square",
    match,
    fixes=(
        *LOG,
        *LARGE_QUOTIENT,
        epsilon("a small number added to the mean square", "log(mean(x**2, d, k))", "log(mean(x**2, d, k) + 1e-10)"),
    ),
)
