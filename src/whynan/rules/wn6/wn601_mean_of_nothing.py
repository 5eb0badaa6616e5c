"""WN601 mean-of-nothing: a mean, a variance or a mean loss of no element, or a variance of one.

What it is
    mean of an empty tensor, nanmedian of a row of NaN, a mean loss of an empty batch, a mean over what a mask or weights choose where they choose
    nothing or over a segment without elements, or std and var with one element and correction 1.

Why it breaks
    The sum is divided by a count of 0: 0/0 is NaN.

Example
    Bad::

        reward = torch.ones(1)                                   # a batch of one
        advantage = (reward - reward.mean()) / reward.std()

    Good::

        reward = torch.ones(1)
        advantage = (reward - reward.mean()) / (reward.std(correction=0) + 1e-8)

Fix
    Skip the batch, divide by clamp_min(count, 1), or use correction=0.

When it is fine
    Never.

References
    pytorch #70348.
"""

from __future__ import annotations

from whynan.expr.structure import fits
from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.rules.base import OPERATION, STRUCTURE, Explanation, Rule
from whynan.rules.expressions import (
    expressions,
    mean_of_chosen,
    mean_of_segments,
    quotient_message,
)
from whynan.rules.facts import base, count_of, has_empty_operand, is_nan, operand, row, value
from whynan.rules.intents import OVER_COUNT, OVER_COUNT_TITLE, QUOTIENT, epsilon, guard, reformulation
from whynan.rules.wording import operand_source, operator_text

_QUOTIENTS = ("div", "true_divide")
_LOSSES = (
    *((name, "x, y") for name in ("mse_loss", "l1_loss")),
    ("smooth_l1_loss", "x, y, beta=b"),
    ("smooth_l1_loss", "x, y"),
    ("huber_loss", "x, y, delta=b"),
    ("huber_loss", "x, y"),
    ("binary_cross_entropy", "x, y"),
    ("binary_cross_entropy_with_logits", "x, y"),
)
"""Mean losses of as many elements as their input has."""
_SPREADS = ("std", "var", "std_mean", "var_mean")
_UNBIASED = "The variance divides by the count less the correction. That of a single value has no unbiased estimate; correction=0 gives 0."


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if finding.birth == "literal" and name == "nanmedian" and is_nan(finding):
        return Explanation(
            "nanmedian of a row that is NaN throughout has nothing left to choose of: it is NaN",
            "Every element of the row is left out, as by a mask that chooses nothing. Give such a row a number.",
            OPERATION,
        )
    if finding.birth != "invalid" or not is_nan(finding):
        return None
    if name in TORCH.having("WN601"):
        return _mean(finding, name)
    if name in _QUOTIENTS and _is_variance_over_zero(finding):
        return Explanation(
            quotient_message(finding, "the count less 1 of a variance over 1 element"), _UNBIASED, STRUCTURE
        )
    if name in _QUOTIENTS and mean_of_chosen(finding) is not None:
        return Explanation(
            quotient_message(finding, "the sum of the mask, or of the weights, of a mean"),
            "A mean over what a mask or weights choose has no value where they choose nothing. Divide by the count, at least 1.",
            STRUCTURE,
        )
    if name in _QUOTIENTS and mean_of_segments(finding):
        return Explanation(
            quotient_message(finding, "the count of a segment"),
            "A mean over a segment that no element belongs to has no value. Divide by the count, at least 1.",
            STRUCTURE,
        )
    if name in TORCH.having("loss") and has_empty_operand(finding):
        return _nothing(finding, f"the mean of {operator_text(finding)} over no element is 0 / 0")
    lengths = row(finding, "lengths")
    if name == "segment_reduce" and lengths is not None and lengths[0] == 0:
        return Explanation(
            "segment_reduce over a segment of length 0 is 0 / 0", "A segment holds no element.", OPERATION
        )
    return None


def _mean(finding: Finding, name: str) -> Explanation | None:
    source, count = operand(finding, "self"), count_of(finding, "self")
    if source is None or source.shape is None or count is None:
        return None
    if count == 0:
        return _nothing(
            finding,
            f"{name} over no element has no value"
            if name in ("median", "nanmedian")
            else f"{name} over no element divides by a count of 0",
        )
    correction = value(finding, "correction")
    correction = 1.0 if correction is None else correction
    if name not in _SPREADS or count > correction:
        return None
    elements = "1 element" if count == 1 else f"{count} elements"
    return Explanation(
        f"{name} over {elements} with correction {correction:g} divides by {max(count - correction, 0):g}{_shape(finding)}",
        _UNBIASED,
        OPERATION,
    )


def _is_variance_over_zero(finding: Finding) -> bool:
    """Whether it is a sum of squared differences over a number that is 0, as exporters write a variance."""
    found = expressions(finding)
    above = None if found is None else found.argument_term(found.middle, "self")
    below = None if found is None else found.argument_term(found.middle, "other")
    if above is None or below is None or below.number != 0:
        return False
    return fits("A * sum(d ** 2)", above, where=lambda found: found.terms["d"].kind == "sum")


def _nothing(finding: Finding, text: str) -> Explanation:
    return Explanation(f"{text}{_shape(finding)}", "The batch, the mask or the group is empty.", OPERATION)


def _shape(finding: Finding) -> str:
    found = operand(finding, "self")
    if found is None or found.shape is None:
        return ""
    return f": {operand_source(finding, 'self') or 'the input'} has shape {list(found.shape)}"


RULE = Rule(
    "WN601",
    "mean-of-nothing",
    match,
    fixes=(
        *OVER_COUNT,
        reformulation(
            OVER_COUNT_TITLE,
            "mean(x, d, k)",
            "sum(x / clamp(sum(ones_like(x) > 0, dim=d, keepdim=True), min=1), dim=d, keepdim=k)",
        ),
        *(
            reformulation(OVER_COUNT_TITLE, f"{name}({arguments})", f"sum({loss} / count({loss}))", losses=loss)
            for name, arguments in _LOSSES
            for loss in (f"{name}({arguments}, reduction='none')",)
        ),
        guard(
            "0 where a row has nothing left",
            "nanmedian(x, d, k)",
            "nanmedian(where(all(isnan(x), dim=d, keepdim=True), 0, x), dim=d, keepdim=k)",
        ),
        *QUOTIENT,
        *(
            guard(
                f"correction=0 in {name} of 1 element",
                f"{name}(x, d, keepdim=k)",
                f"{name}(x, dim=d, correction=freedom(x, d), keepdim=k)",
            )
            for name in _SPREADS
        ),
        *(
            epsilon(
                f"correction=0 in {name}",
                f"{name}(x, d, correction=c, keepdim=k)",
                f"{name}(x, dim=d, correction=0, keepdim=k)",
            )
            for name in _SPREADS
        ),
    ),
)
