"""WN104 inf-minus-inf: infinities of opposite sign were added.

What it is
    An addition or subtraction meets Inf and -Inf, or a mask of -Inf is subtracted from itself.

Why it breaks
    IEEE 754 defines no value for Inf - Inf: the result is NaN.

Example
    Bad::

        z = x - x.max()      # every x is -inf

    Good::

        z = x - x.max().clamp_min(finfo.min)

Fix
    Use the most negative finite value of the dtype for a mask, or skip rows that are masked whole.

When it is fine
    Never.

References
    IEEE 754-2019, 7.2.
"""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

from whynan.rules.base import Explanation, Rule
from whynan.rules.facts import base, operand, row, said, value

if TYPE_CHECKING:
    from whynan.records import Finding


_NORMS = ("native_batch_norm", "native_layer_norm", "native_group_norm", "var", "std", "var_mean", "std_mean")
_SUMS = ("sum", "mean", "cumsum", "trace")


def match(finding: Finding) -> Explanation | None:
    name = base(finding)
    if name in ("sub", "add", "rsub"):
        found = [value(finding, n) for n in ("self", "other")]
        if not all(v is not None and abs(v) == float("inf") for v in found):
            return None
        first, second = (found[1], found[0]) if name == "rsub" else (found[0], found[1])
        sign = "+" if name == "add" else "-"
        return Explanation(
            f"{said(first)} {sign} {_bracketed(said(second))} is NaN",
            "Two infinities cancel to no value; one of them is often a mask that covers the whole row.",
            2,
        )
    span = row(finding, "self", "input")
    if span is None or finding.birth != "invalid":
        return None
    low, high = span
    source = operand(finding, "self", "input")
    spelled = (source.expression or "the operand") if source is not None else "the operand"
    if name in _SUMS and low == float("-inf") and high == float("inf"):
        return Explanation(
            f"{name} over a row from -Inf to Inf is NaN: {spelled} holds infinities of both signs",
            "Infinities of opposite signs cancel to no value.",
            2,
        )
    if name in _NORMS and float("inf") in (abs(low), abs(high)):
        infinite = said(high if abs(high) == float("inf") else low)
        return Explanation(
            f"{name} of {spelled}, from {said(low)} to {said(high)}: the mean is {infinite} and {infinite} minus it is NaN",
            "One infinite value spoils the mean, and with it every element that is normalised with it.",
            2,
        )
    return None


def _bracketed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


RULE = Rule("WN104", "inf-minus-inf", match)
