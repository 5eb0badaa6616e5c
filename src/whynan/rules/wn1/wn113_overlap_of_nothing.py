"""WN113 overlap-of-nothing: the overlap of two masks, over their sizes, which are 0.

What it is
    sum(a b) / (sum(a) + sum(b)), as in the scores of Dice, IoU and Tversky, of two empty masks, or the overlap of two boxes
    of no size over their union.

Why it breaks
    Nothing overlaps, and there is nothing that could: 0/0 has no value.

Example
    Bad::

        mask, target = torch.zeros(4), torch.zeros(4)
        dice = 2 * (mask * target).sum() / (mask.sum() + target.sum())

    Good::

        mask, target = torch.zeros(4), torch.zeros(4)
        dice = (2 * (mask * target).sum() + 1) / (mask.sum() + target.sum() + 1)

Fix
    Add a smoothing number above and below the line.

When it is fine
    Where one of the masks is never empty.

References
    V-Net: Milletari et al., arXiv 1606.04797.
"""

from __future__ import annotations

from typing import Final

from whynan.expr import NormalForm
from whynan.expr.structure import Bindings, fits, matches, sources
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import quotient_message, quotients_by_zero
from whynan.rules.intents import QUOTIENT, epsilon

_OVERLAP: Final = "sum(a ** A * b ** B) * ... / y"
_SIZES: Final = "each(A * sum(...))"
_OF_UNION: Final = " | ".join(
    (
        "x * ... / (A * a + B * b - C * x)",
        "sum(x) * ... / (A * a - B * sum(x))",
        "prod(x) * ... / (A * a - B * prod(x))",
        "x * y * ... / (A * a - B * x * y)",
    )
)
"""As the overlap of two boxes is compared with what they cover together; an overlap is a sum or a product."""
_WHY: Final = "Where both boxes or masks are empty there is nothing to overlap: clamp the union away from 0, or leave such pairs out."


def _is_one(term: NormalForm) -> bool:
    for found in matches(_OVERLAP, term):
        a, b, size = (found.terms[name] for name in "aby")
        if fits(_SIZES, size) and sources(size, a, b) == frozenset((a, b)):
            return True
    return False


def match(finding: Finding) -> Explanation | None:
    at = quotients_by_zero(finding)
    if at is None:
        return None
    below = at[0].argument_term(at[0].middle, "other")
    if below is not None and fits("A + ...", below, where=lambda found: found.numbers["A"] != 0):
        # what a number is taken off is 0 where there is something: a count of 1, less 1
        return None
    if not any(_is_one(term) for term in at[1]):
        if not fits(_OF_UNION, at[1][0], where=Bindings.one_sign):
            return None
        return Explanation(quotient_message(finding, "the size of the union"), _WHY, STRUCTURE)
    return Explanation(
        quotient_message(finding, "the size of the masks"),
        "Where both masks are empty there is nothing to overlap: add the same small number above and below the line, which "
        "makes the score of two empty masks 1.",
        STRUCTURE,
    )


RULE = Rule(
    "WN113",
    "overlap-of-nothing",
    match,
    fixes=(
        *QUOTIENT,
        epsilon("a small number above and below the line", "a / b", "(a + 1e-6) / (b + 1e-6)"),
    ),
)
