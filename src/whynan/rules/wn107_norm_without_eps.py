"""WN107 norm-without-eps: a normalisation of a constant row without an epsilon.

What it is
    layer_norm or group_norm with eps = 0 meets a row whose values are all equal.

Why it breaks
    The variance is 0: the row minus its mean is 0, divided by the square root of 0.

Example
    Bad::

        x = torch.ones(1, 3)
        y = F.layer_norm(x, (3,), eps=0)

    Good::

        x = torch.ones(1, 3)
        y = F.layer_norm(x, (3,))

Fix
    Give eps a value that the dtype can hold: 1e-5, the default.

When it is fine
    Never.

References
    torch.nn.LayerNorm.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import INF, all_finite, base, forward_value, is_nan, operand, row, said, value
from whynan.rules.wording import doing, row_text

if TYPE_CHECKING:
    from whynan.records import Finding


_WHY = (
    "Equal values have a variance of 0: the row minus its mean is divided by the square root of that variance plus eps."
)


def match(finding: Finding) -> Explanation | None:
    name, found = base(finding), operand(finding, "input")
    if found is None or not is_nan(finding):
        return None
    if name in ("native_layer_norm", "native_group_norm") and value(finding, "eps") == 0 and all_finite(finding):
        return Explanation(
            f"{doing(finding)} of {row_text(found)} with eps = 0 is 0 / 0: the variance is 0", _WHY, OPERATION
        )
    if name in ("native_layer_norm_backward", "native_group_norm_backward"):
        scale, eps = row(finding, "rstd"), forward_value(finding, "eps")
        if scale is not None and scale[1] == INF:
            known = (
                ""
                if eps is None
                else f"eps = {said(eps)}{'' if eps == 0 else f', which {found.dtype} cannot add to it,'} and "
            )
            return Explanation(
                f"the derivative of {doing(finding).removesuffix('_backward')} multiplies by 1 / sqrt(variance + eps), which is "
                f"1 / 0 here: {known}{row_text(found)}",
                _WHY,
                OPERATION,
            )
    return None


RULE = Rule("WN107", "norm-without-eps", match)
