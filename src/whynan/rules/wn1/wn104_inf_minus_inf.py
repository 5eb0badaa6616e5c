"""WN104 inf-minus-inf: infinities of opposite sign were added.

What it is
    An addition or subtraction meets Inf and -Inf, or an infinity is subtracted from itself.

Why it breaks
    IEEE 754 defines no value for Inf - Inf: the result is NaN.

Example
    Bad::

        scores = torch.full((3,), -inf)         # all are masked
        shifted = scores - scores.max()

    Good::

        scores = torch.full((3,), -inf)
        shifted = scores - scores.max().clamp_min(torch.finfo(scores.dtype).min)

Fix
    Use the most negative finite value of the dtype for a mask, or skip rows that are masked whole.

When it is fine
    Never.

References
    IEEE 754-2019, 7.2.
"""

from __future__ import annotations

from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import INF, base, is_nan, number_text, operand, row, value
from whynan.rules.intents import guard
from whynan.rules.wording import derivative, operand_source, operator_text, row_text

_WHY = "Two infinities cancel to no value."
_SUMS = ("sum", "mean", "cumsum", "trace")
_SOFTMAX = ("_softmax", "_log_softmax")


def match(finding: Finding) -> Explanation | None:
    if not is_nan(finding):
        return None
    if base(finding) in ("sub", "add", "rsub"):
        return _pair(finding)
    found, span = operand(finding, "self", "input"), row(finding, "self", "input")
    if found is None or span is None or finding.birth != "invalid":
        return None
    low, high = span
    text = ""
    if base(finding) in _SUMS and (low, high) == (-INF, INF):
        text = f"{row_text(found)} is NaN: it adds infinities of both signs"
    elif base(finding) in TORCH.having("WN104") and INF in (abs(low), abs(high)):
        text = f"{row_text(found)} is NaN: {_mean(low, high)}"
    elif base(finding) in _SOFTMAX and high == INF:
        text = f"{row_text(found)} is NaN: it subtracts the maximum, and Inf - Inf has no value"
    if not text:
        return None
    return Explanation(
        f"{operator_text(finding)} over {text}",
        "One infinite value spoils the whole row: infinities cancel to no value. Look where that value was made.",
        OPERATION,
    )


def _pair(finding: Finding) -> Explanation | None:
    names = ("other", "self") if base(finding) == "rsub" else ("self", "other")
    first, second = (value(finding, n) for n in names)
    if first is None or second is None or (abs(first), abs(second)) != (INF, INF):
        return None
    scale = value(finding, "alpha")
    if scale is not None:
        return _scaled(finding, first, second, scale)
    sign = "+" if base(finding) == "add" else "-"
    texts = [text for n in names if (text := operand_source(finding, n))]
    known = (
        f": {' and '.join(dict.fromkeys(texts))} {'are' if len(set(texts)) > 1 else 'is'} infinite here"
        if texts
        else ""
    )
    right = f"({number_text(second)})" if second < 0 else number_text(second)
    return Explanation(
        f"{number_text(first)} {sign} {right} is NaN{derivative(finding) or known}",
        _WHY if finding.phase == "optimizer" else f"{_WHY[:-1]}; one of them is often a mask that covers a whole row.",
        OPERATION,
    )


def _scaled(finding: Finding, first: float, second: float, scale: float) -> Explanation | None:
    """``add`` and ``sub`` with a factor: the sum is NaN only if the infinities are of opposite signs with it."""
    sign = "-" if base(finding) == "sub" else "+"
    added = second * scale * (-1 if sign == "-" else 1)
    if first + added == first + added:
        return None
    factor, right = (f"({number_text(v)})" if v < 0 else number_text(v) for v in (scale, second))
    return Explanation(f"{number_text(first)} {sign} {factor} × {right} is NaN{derivative(finding)}", _WHY, OPERATION)


def _mean(low: float, high: float) -> str:
    if (low, high) == (-INF, INF):
        return "the mean adds infinities of both signs"
    word = number_text(high if high == INF else low)
    right = f"({word})" if word.startswith("-") else word
    return f"the mean is {word}, and {word} - {right} has no value"


RULE = Rule(
    "WN104",
    "inf-minus-inf",
    match,
    torch="all",
    fixes=(
        guard(
            "the most negative finite number instead of -Inf",
            "x - amax(x, d, k)",
            "clamp(x, min=finfo(x).min) - amax(clamp(x, min=finfo(x).min), d, k)",
            limited="clamp(x, min=finfo(x).min)",
        ),
        guard("0 in place of an infinite maximum", "exp(a - b)", "exp(a - where(abs(b) > finfo(b).max, 0, b))"),
        guard("0 where two infinities meet", "a - b", "where(logical_and(a == b, abs(a) > finfo(a).max), 0, a - b)"),
    ),
)
