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

from whynan.expr import Term
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import factors, quotient_message, quotients_by_zero, without_coefficient
from whynan.rules.intents import QUOTIENT, epsilon

_WHY: Final = "Where both boxes or masks are empty there is nothing to overlap: clamp the union away from 0, or leave such pairs out."


def _is_one(term: Term) -> bool:
    parts = factors(term)
    above = [without_coefficient(base) for base, power in parts if power == 1]
    overlaps = [t.arguments[0] for t in above if t.is_call("sum") and len(factors(t.arguments[0])) == 2]
    below = [base for base, power in parts if power == -1]
    return any(_is_size(base, {mask for mask, _ in factors(of)}) for of in overlaps for base in below)


def _is_size(term: Term, masks: set[Term]) -> bool:
    found = term.arguments if term.kind == "sum" else (term,)
    inside = [part.arguments[0] for part in found if part.is_call("sum")]
    # the sum of several maps, counted at once
    inside = [each for of in inside for each in (of.arguments if of.kind == "sum" and not of.constant else (of,))]
    sizes = [{_without_complement(mask) for mask, _ in factors(of)} for of in inside]
    return all(part.is_call("sum") for part in found) and set[Term]().union(*sizes) == masks


def _without_complement(mask: Term) -> Term:
    """The mask of ``1 - mask``, as false positives and negatives are counted."""
    if mask.kind == "sum" and mask.constant == 1 and len(mask.parts) == 1 and mask.parts[0][1] == -1:
        return mask.arguments[0]
    return mask


def _is_of_union(term: Term) -> bool:
    """``x / (a + b - x)``, as the overlap of two boxes is compared with what they cover together."""
    above = [base for base, power in factors(without_coefficient(term)) if power == 1]
    unions = [
        base
        for base, power in factors(without_coefficient(term))
        if power == -1 and base.kind == "sum" and not base.constant
    ]
    return any(_subtracts(union, overlap) for union in unions for overlap in above)


def _subtracts(union: Term, overlap: Term) -> bool:
    number = dict(union.parts).get(overlap)
    return number is not None and len(union.parts) > 1 and all(n * number < 0 for p, n in union.parts if p != overlap)


def match(finding: Finding) -> Explanation | None:
    at = quotients_by_zero(finding)
    if at is None:
        return None
    if not any(_is_one(term) for term in at[1]):
        if not _is_of_union(at[1][0]):
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
