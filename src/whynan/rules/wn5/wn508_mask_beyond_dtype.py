"""WN508 mask-beyond-dtype: a finite mask value that does not fit the dtype of the scores.

What it is
    mask * -1e9, or a mask of -1e9 that is cast, where the scores are float16.

Why it breaks
    float16 ends at -65504: the mask is -Inf, and a row that it covers as a whole has no softmax.

Example
    Bad::

        scores = torch.zeros(1, 2, dtype=torch.float16)
        hide = torch.ones(1, 2, dtype=torch.float16)
        p = (scores + hide * -1e9).softmax(-1)

    Good::

        scores = torch.zeros(1, 2, dtype=torch.float16)
        hide = torch.ones(1, 2, dtype=torch.float16)
        p = (scores + hide * torch.finfo(scores.dtype).min).softmax(-1)

Fix
    Use finfo(scores.dtype).min, or masked_fill with it.

When it is fine
    Where no row is covered as a whole, or its softmax is left out.

References
    torch.finfo.
"""

from __future__ import annotations

from whynan.expr import Expressions, NormalForm
from whynan.expr.structure import fits
from whynan.records import Argument, Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import downstream, expressions
from whynan.rules.facts import INF, base, is_nan, limit, maximum, number_text
from whynan.rules.intents import guard


def match(finding: Finding) -> Explanation | None:
    found, most = expressions(finding), maximum(finding.element.dtype)
    if found is None or most is None or not (finding.element.value == -INF or is_nan(finding)):
        return None
    if (
        finding.phase == "backward"
        or finding.birth == "entered"
        or not any(_takes_scores(t) for t in downstream(found))
    ):
        return None
    low = _scaled(found) if base(finding) == "mul" else _cast(found) if base(finding) in ("_to_copy", "copy") else None
    if low is None or not -INF < low < -most:
        return None
    product = ", and 0 times that is NaN where nothing is hidden" if is_nan(finding) else ""
    return Explanation(
        f"a mask of {number_text(low)} is -Inf in {finding.element.dtype}: it lies below -{limit(finding).rpartition(' ')[2]}, the least "
        f"finite value{product}",
        "A mask is meant to be a finite number, so that a row of nothing but hidden places still has a softmax. finfo(dtype).min is "
        "the least that fits.",
        STRUCTURE,
    )


def _takes_scores(term: NormalForm) -> bool:
    """Whether it is scores that a mask was added to, or their softmax."""
    return term.kind == "sum" or fits("(softmax | log_softmax)(x)", term)


def _scaled(found: Expressions) -> float | None:
    """The number that a mask of zeros and ones is multiplied by."""
    pair = [found.recorded_argument(found.middle, name) for name in ("self", "other")]
    for mask, factor in (pair, pair[::-1]):
        number = _number(factor)
        if mask is None or number is None or mask.min is None or mask.max is None:
            continue
        if (mask.min >= 0 and mask.max == 1) or (mask.min == -1 and mask.max <= 0):
            return -abs(number)
    return None


def _number(given: Argument | None) -> float | None:
    if given is None:
        return None
    low, high = (given.value, given.value) if given.shape is None else (given.min, given.max)
    return None if low is None or low != high else float(low)


def _cast(found: Expressions) -> float | None:
    """The least value of a mask, which is 0 elsewhere."""
    given = found.recorded_argument(found.middle, "self", "src")
    if given is None or given.min is None or given.max is None or given.min <= -INF:
        return None
    return float(given.min) if given.max == 0 or given.max == given.min else None


RULE = Rule(
    "WN508",
    "mask-beyond-dtype",
    match,
    fixes=(
        guard(
            "half of the most negative finite number where the mask is below the range",
            "m * c",
            "where(abs(m * c) > finfo(m).max, finfo(m).min / 2, m * c)",
        ),
        guard(
            "the most negative finite number of the dtype", "masked_fill(x, m, c)", "masked_fill(x, m, finfo(x).min)"
        ),
        guard("the most negative finite number of the dtype", "where(m, x, c)", "where(m, x, finfo(x).min)"),
    ),
)
