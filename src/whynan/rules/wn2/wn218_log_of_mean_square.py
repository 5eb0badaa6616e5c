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

from whynan.expr import Term
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import (
    divisors,
    factors,
    logarithm_message,
    logarithm_of_zero,
    quotient_message,
    quotients_by_zero,
    without_coefficient,
)
from whynan.rules.intents import LARGE_QUOTIENT, LOG, epsilon


def _is_energy(term: Term) -> bool:
    """A sum of squares, one weighted by a bank of filters included."""
    if not term.is_call("sum", "matmul"):
        return False
    if term.is_call("sum") and len(weighted := factors(without_coefficient(term.arguments[0]))) == 2:
        return sorted(power for _, power in weighted) == [1, 2]
    return any(all(power == 2 for _, power in factors(without_coefficient(part))) for part in term.arguments)


def _has_energy(term: Term) -> bool:
    return any(_is_energy(part) for part, _ in factors(without_coefficient(term)))


def match(finding: Finding) -> Explanation | None:
    if (at := logarithm_of_zero(finding)) is not None:
        if not _has_energy(at[1]):
            return None
        what = _called(at[0].argument_term(at[0].middle, "self") or at[1])
        return _told(logarithm_message(finding, what, ""), what)
    ratio, by = quotients_by_zero(finding), divisors(finding)
    energies = [divisor for divisor in by if _is_energy(divisor)]
    if ratio is None or not any(_is_level(t, energies) for t in ratio[1]):
        return None
    what = _called(ratio[0].argument_term(ratio[0].middle, "other", "self") or energies[0])
    return _told(quotient_message(finding, what), what)


def _is_level(term: Term, energies: list[Term]) -> bool:
    """Whether it is the logarithm of the ratio that the birth is, and not of something else that was made of it."""
    if not term.is_call("log"):
        return False
    return any(power < 0 and base in energies for base, power in factors(without_coefficient(term.arguments[0])))


def _called(term: Term) -> str:
    """What a sum of squares is: a mean has a factor below 1, and a bank of filters weights."""
    if term.kind == "sum" and len(term.parts) == 1 and 0 < term.parts[0][1] < 1:
        return "the mean of the squares"
    plain = without_coefficient(term)
    weighted = plain.is_call("matmul") or (
        plain.is_call("sum") and len(factors(without_coefficient(plain.arguments[0]))) == 2
    )
    return "a weighted sum of squares" if weighted else "the sum of the squares"


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
