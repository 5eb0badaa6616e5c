"""WN302 sqrt-of-negative: the square root of a negative number.

What it is
    sqrt or rsqrt meets a value below 0, often -0.0000001 from rounding.

Why it breaks
    There is no real root of a negative number: NaN.

Example
    Bad::

        x = torch.full((4,), 100.1)
        deviation = torch.sqrt((x * x).mean() - x.mean() ** 2 - 1e-3)

    Good::

        x = torch.full((4,), 100.1)
        deviation = x.std(correction=0)

Fix
    Use var/std, or clamp_min(0) before the root.

When it is fine
    Where it is selected away, in backward too (double where).

References
    IEEE 754-2019, 5.4.1.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, OPERATION, Explanation, Rule
from whynan.rules.facts import all_finite, base, forward_base, forward_value, is_nan, is_onnx, number_text, row, value
from whynan.rules.intents import ROOT_ABOVE, guard, reformulation
from whynan.rules.wording import derivative, forward_operand_source, named_value_text, operand_source, operator_text

_EIGENVALUES = {"aten._linalg_eigh.default", "aten.linalg_eigh.default", "aten.linalg_eigvalsh.default"}


def match(finding: Finding) -> Explanation | None:
    if not is_nan(finding):
        return None
    name, found = base(finding), value(finding, "self")
    of, behind = forward_base(finding), forward_value(finding, "self")
    if of in ("sqrt", "rsqrt") and behind is not None and behind < 0:
        return Explanation(
            f"{of}({number_text(behind)}) was NaN in the forward, and its derivative is computed from that"
            f"{named_value_text(forward_operand_source(finding, 'self'), 'negative')}",
            "The derivative is made of the forward's own result. It is NaN even where that result was selected away "
            "afterwards, so that the gradient that comes in is 0.",
            DERIVATIVE,
        )
    if name in ("sqrt", "rsqrt") and found is not None and found < 0:
        return Explanation(
            f"{name}({number_text(found)}) is NaN{derivative(finding) or named_value_text(operand_source(finding, 'self'), 'negative')}",
            _usual(finding),
            OPERATION,
        )
    return _variance(finding)


def _usual(finding: Finding) -> str:
    """Where a negative operand usually comes from; eigenvalues are known by the operation that made them."""
    if _EIGENVALUES & {link.op for link in finding.chain if link.role == "cause"}:
        return (
            "The matrix is not positive definite. Of a covariance of fewer samples than features some eigenvalues are 0 in "
            "exact arithmetic, and come out a rounding error above or below it."
        )
    return "A difference of two nearly equal numbers, or an operand that nothing bounds, is the usual source."


def _variance(finding: Finding) -> Explanation | None:
    """The running variance that batch_norm divides by, where it is negative."""
    span, eps = row(finding, "running_var"), value(finding, "eps")
    if base(finding) != "native_batch_norm" or span is None or eps is None or not span[0] + eps < 0:
        return None
    if not all_finite(finding):
        return None
    name, added = (
        operand_source(finding, each) or each if is_onnx(finding) else each for each in ("running_var", "eps")
    )
    return Explanation(
        f"{operator_text(finding).removeprefix('native_')} takes the root of {name} + {added}, and {name} is as low as {number_text(span[0])}",
        "A variance cannot be negative: the buffer was overwritten, or loaded from somewhere else.",
        OPERATION,
    )


RULE = Rule(
    "WN302",
    "sqrt-of-negative",
    match,
    torch="all",
    fixes=(
        reformulation(
            "std(x) instead of the difference of moments",
            "sqrt(mean(x**2, d, k) - mean(x, d, k) ** 2)",
            "std(x, dim=d, correction=0, keepdim=k)",
        ),
        guard("0 where the operand is below 0", "sqrt(x)", "sqrt(clamp(x, min=0))"),
        *ROOT_ABOVE,
    ),
)
