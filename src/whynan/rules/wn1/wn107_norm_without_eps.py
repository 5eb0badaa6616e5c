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

from __future__ import annotations

from whynan.records import Finding, Operand
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import all_finite, base, is_nan, is_onnx, number_text, operand, result, row, value
from whynan.rules.intents import epsilon
from whynan.rules.wording import operand_source, operator_text, row_text

_WHY = (
    "Equal values have a variance of 0: the row minus its mean is divided by the square root of that variance plus eps."
)
_NORMS = ("native_layer_norm", "native_group_norm")
_SCALE = 2
"""The output of these that is 1 / sqrt(variance + eps)."""
_DIRECTION = "A row of zeros has no direction that could be kept: it is divided by its norm, and both are 0."


def match(finding: Finding) -> Explanation | None:
    name, found = base(finding), operand(finding, "input", "self")
    if found is not None and name in _NORMS and finding.element.output == _SCALE and not is_nan(finding):
        return _scale(finding, found)
    if found is None or not is_nan(finding):
        return _batch(finding) if name == "native_batch_norm" else None
    if name == "lp_normalization" and row(finding, "self") == (0, 0):
        return Explanation(
            f"{operator_text(finding)} of {row_text(found)} is 0 / 0: its norm is 0", _DIRECTION, OPERATION
        )
    if name == "native_batch_norm":
        return _batch(finding)
    eps = "epsilon" if is_onnx(finding) else "eps"
    if name in _NORMS and value(finding, "eps") == 0 and all_finite(finding):
        return Explanation(
            f"{operator_text(finding)} of {row_text(found)} with {eps} = 0 is 0 / 0: the variance is 0", _WHY, OPERATION
        )
    return None


def _scale(finding: Finding, found: Operand) -> Explanation:
    """What a row minus its mean is multiplied by, and its derivative too, where variance and eps are too small."""
    eps = value(finding, "eps")
    added = "" if eps is None else f"eps = {number_text(eps)} and "
    return Explanation(
        f"{operator_text(finding)} multiplies by 1 / sqrt(variance + eps), which is Inf in {found.dtype}: {added}{row_text(found)}",
        _WHY,
        OPERATION,
    )


def _batch(finding: Finding) -> Explanation | None:
    """A batch norm in evaluation that divides by a running variance of 0."""
    span, eps = row(finding, "running_var"), value(finding, "eps")
    if not is_onnx(finding) or span != (0, 0) or eps != 0:
        return None
    return Explanation(
        f"{operator_text(finding)} with epsilon = 0 divides by the square root of {operand_source(finding, 'running_var')}, which is 0 here: "
        f"it gives {result(finding)}",
        "The variance of a channel that was constant in training is 0, and nothing is added to it.",
        OPERATION,
    )


RULE = Rule(
    "WN107",
    "norm-without-eps",
    match,
    fixes=(
        epsilon(
            "eps=1e-5, the default", "layer_norm(x, s, w, b, eps=e)", "layer_norm(x, s, weight=w, bias=b, eps=1e-5)"
        ),
        epsilon(
            "eps=1e-5, the default", "group_norm(x, s, w, b, eps=e)", "group_norm(x, s, weight=w, bias=b, eps=1e-5)"
        ),
    ),
)
