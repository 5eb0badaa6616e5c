"""WN801 optimizer-eps-zero: an optimizer divided by zero.

What it is
    The denominator of an update (Adam, RMSprop, Adagrad) is 0: the gradient was 0 or its square underflowed,
    and eps is 0 or vanishes in the dtype.

Why it breaks
    Adam divides m by sqrt(v) + eps; with a gradient of 0 and eps 0 that is 0/0. 1e-8 is 0 in float16.

Example
    Bad::

        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.Adam([weight], eps=0)
        (weight * torch.tensor([0.0, 1.0])).sum().backward()
        optimizer.step()

    Good::

        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.Adam([weight], eps=1e-8)
        (weight * torch.tensor([0.0, 1.0])).sum().backward()
        optimizer.step()

Fix
    Give eps a value that the dtype of the state can hold, or keep float32 master weights.

When it is fine
    Never.

References
    pytorch #147437; Kingma and Ba, arXiv 1412.6980.
"""

from __future__ import annotations

from whynan.floats import smallest
from whynan.records import Finding
from whynan.rules.base import SETTING, Explanation, Rule
from whynan.rules.facts import base, is_in_library_step, number_text, result, value
from whynan.rules.intents import setting
from whynan.rules.wording import operator_text

_QUOTIENTS = {"addcdiv": ("tensor1", "tensor2"), "div": ("self", "other")}
_WHY = (
    "The gradient of this element is 0, or its square is too small for the dtype; and eps is 0, or too small for the "
    "dtype, so that it does not keep the denominator away from 0."
)


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if not is_in_library_step(finding):
        # in the lines of an optimizer of the program's own there need be no eps
        return None
    owner = f"the parameter {finding.element.tensor}" if finding.element.tensor else "the result"
    if name.startswith("_fused_ada"):
        eps, least = value(finding, "eps"), smallest(finding.element.dtype)
        if eps is None or least is None or eps >= least / 2:
            return None
        return Explanation(
            f"the update {operator_text(finding)} with eps = {number_text(eps)} divides by 0 and makes {owner} {result(finding)}",
            _WHY,
            SETTING,
        )
    if name in _QUOTIENTS and value(finding, _QUOTIENTS[name][1]) == 0:
        above = value(finding, _QUOTIENTS[name][0])
        return Explanation(
            f"the update divides {number_text(above)} by 0 and makes {owner} {result(finding)}", _WHY, SETTING
        )
    if name == "reciprocal" and value(finding, "self") == 0:
        return Explanation(f"the update divides by 0 and makes {owner} {result(finding)}", _WHY, SETTING)
    return None


RULE = Rule(
    "WN801",
    "optimizer-eps-zero",
    match,
    fixes=(
        setting("eps=1e-8 for float32 parameters, and eps=1e-4 for float16 ones"),
        setting("float32 parameters, and torch.autocast for the computation"),
    ),
)
