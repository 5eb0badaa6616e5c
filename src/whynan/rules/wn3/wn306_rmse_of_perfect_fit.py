"""WN306 rmse-of-perfect-fit: the root of a mean squared error that is 0.

What it is
    sqrt(mean((a - b)²)), in whatever spelling, of a fit without any error.

Why it breaks
    The root is 0, and its derivative divides by it: Inf, times the differences, which are 0, is NaN.

Example
    Bad::

        fit = torch.ones(3, requires_grad=True)
        loss = torch.sqrt(torch.nn.functional.mse_loss(fit, torch.ones(3)))
        loss.backward()

    Good::

        fit = torch.ones(3, requires_grad=True)
        loss = torch.sqrt(torch.nn.functional.mse_loss(fit, torch.ones(3)) + 1e-12)
        loss.backward()

Fix
    Add a small number inside the root, or minimise the mean squared error itself.

When it is fine
    Where no gradient flows through it.

References
    pytorch #6394.
"""

from __future__ import annotations

from whynan.expr.structure import Bindings, fits
from whynan.records import Finding
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import root_at_zero, root_message
from whynan.rules.intents import MEAN_ROOT, ROOT, ROOT_EPSILON


def _is_mean_of_differences(found: Bindings) -> bool:
    return found.numbers["P"] < 1 and found.terms["d"].kind == "sum"


def match(finding: Finding) -> Explanation | None:
    at = root_at_zero(finding)
    of = None if at is None else at[0].argument_term(at[0].middle, "self")
    if of is None or not fits("P * sum(d ** 2)", of, where=_is_mean_of_differences):
        return None
    return Explanation(
        root_message(finding, "the mean squared error"),
        "Where the prediction is exact the root is a healthy 0, and its slope infinite: Inf, times a difference of 0, is NaN. "
        "A small number inside of the root keeps the slope finite.",
        STRUCTURE,
    )


RULE = Rule("WN306", "rmse-of-perfect-fit", match, fixes=(*MEAN_ROOT, *ROOT, *ROOT_EPSILON))
