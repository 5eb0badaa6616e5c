"""WN507 two-masks-added: the sum of two masks of the dtype's most negative finite value.

What it is
    A causal and a padding mask, each of finfo(dtype).min where a place is hidden, are added, in scores of which a whole row
    is hidden, or that are multiplied with a weight of 0 afterwards.

Why it breaks
    The sum of two such values is out of range: -Inf. Where a row has nothing else its softmax is NaN; with one mask it
    would have been even.

Example
    Bad::

        low = torch.finfo(torch.float32).min
        padding = torch.full((1, 2), low)        # a sequence of padding only
        window = torch.full((1, 2), low)         # nothing within reach
        p = (torch.zeros(1, 2) + (padding + window)).softmax(-1)

    Good::

        low = torch.finfo(torch.float32).min
        padding = torch.tensor([[True, True]])
        window = torch.tensor([[True, True]])
        p = torch.zeros(1, 2).masked_fill(padding | window, low).softmax(-1)

Fix
    Join the masks as booleans, and fill once.

When it is fine
    Where each row keeps a place: -Inf is then as good as the finite value.

References
    NeMo Automodel, PR #2658.
"""

from __future__ import annotations

from whynan.expr import Expressions, NormalForm
from whynan.expr.structure import contains
from whynan.records import Argument, Finding, Operation
from whynan.rules.base import GUARD, Explanation, Rule
from whynan.rules.expressions import expressions, product_message, zero_times_infinity
from whynan.rules.facts import INF, base, is_nan, maximum, number_text, row
from whynan.rules.intents import guard, setting
from whynan.rules.wording import operand_source, operator_text


def match(finding: Finding) -> Explanation | None:
    found = expressions(finding)
    if found is None or not is_nan(finding):
        return None
    what = _row(finding) if base(finding) in ("_softmax", "_log_softmax") else _product(finding)
    low = None if what is None else _added(found, maximum(finding.element.dtype), whole=what[1])
    if what is None or low is None:
        return None
    return Explanation(
        f"{what[0]}: two masks were added, and {number_text(low)} + ({number_text(low)}) is -Inf in {finding.element.dtype}",
        "Each mask is finite, and its softmax would be even where it covers a whole row; their sum is out of range. Join masks as "
        "booleans and fill once.",
        GUARD,
    )


def _row(finding: Finding) -> tuple[str, NormalForm | None] | None:
    """The sentence of a softmax over a row that is all -Inf."""
    if row(finding, "self") != (-INF, -INF):
        return None
    name = operand_source(finding, "self")
    return f"{operator_text(finding)} over a row{f' of {name}' if name else ''} that is all -Inf is NaN", None


def _product(finding: Finding) -> tuple[str, NormalForm | None] | None:
    """The sentence of 0 times a score of -Inf, and the product."""
    at = zero_times_infinity(finding)
    return None if at is None else (product_message(finding, "a weight times a masked score"), at[1])


def _added(found: Expressions, most: float | None, *, whole: NormalForm | None) -> float | None:
    """The value of two masks that were added before, into a part of the whole; None where there are none."""
    for operation in found.named("add"):
        if most is None or operation.hops >= 0:
            continue
        low = [_low(given) for given in _pair(found, operation)]
        if not all(value < -most / 2 for value in low) or sum(low) >= -most:
            continue
        if whole is None or contains(whole, found.output_term(operation.event)):
            return low[0]
    return None


def _pair(found: Expressions, operation: Operation) -> list[Argument | None]:
    return [found.recorded_argument(operation.event, name) for name in ("self", "other")]


def _low(given: Argument | None) -> float:
    """The least value of an argument; 0 where it is not known or not finite."""
    return float(given.min) if given is not None and given.min is not None and given.min > -INF else 0.0


RULE = Rule(
    "WN507",
    "two-masks-added",
    match,
    fixes=(
        guard(
            "the most negative finite number where the sum of masks is below it",
            "a + b",
            "clamp(a + b, min=finfo(a).min)",
        ),
        setting("one boolean mask, padding | window, in place of a sum of two"),
    ),
)
