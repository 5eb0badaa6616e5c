"""Formulas of operators that ONNX does not have, or has only where they overflow, in operators that it has.

By the name of the function in PyTorch; the names in a formula are its parameters. What occurs twice is computed once.
"""

from __future__ import annotations

from typing import Final

_PI: Final = 3.141592653589793


def _negative(value: str) -> str:
    """Whether a number is negative, -0.0 included: its reciprocal tells."""
    return f"({value} < 0) | (reciprocal({value}) < 0)"


def _log1p() -> str:
    """log(u) * x / (u - 1) with u = 1 + x, which mends the rounding of u; x itself where u is 1 (Kahan)."""
    added = "(input + 1 - 1)"
    plain = f"where(({added} == 0) | (input > 1), 1, {added})"
    ratio = f"where(input > 1, 1, input / {plain})"
    return f"where({added} == 0, input, log(input + 1) * {ratio})"


def _expm1() -> str:
    """(u - 1) * x / log(u) with u = exp(x), which mends the rounding of u; exp(x) - 1 where that is exact (Kahan)."""
    less = "(exp(input) - 1)"
    safe = f"where(({less} == 0) | (abs(input) > 1), 2, exp(input))"
    return f"where({less} == 0, input, where(abs(input) > 1, {less}, {less} * (input / log({safe}))))"


def _hypot() -> str:
    """The root of 1 plus the square of the lesser over the greater, times that."""
    most, least = "maximum(abs(input), abs(other))", "minimum(abs(input), abs(other))"
    ratio = f"({least} / where({most} == 0, 1, {most}))"
    return f"{most} * sqrt({ratio} * {ratio} + 1)"


def _atan2() -> str:
    """The angle of a point: the arc tangent of the lesser over the greater, turned into its octant."""
    height, width = "abs(input)", "abs(other)"
    most, least = f"maximum({height}, {width})", f"minimum({height}, {width})"
    same = f"({height} == {width})"
    ratio = f"({least} / where(({most} == 0) | {same}, 1, {most}))"
    # of two infinities too; of two zeros the angle is 0
    angle = f"atan(where({same} & ({most} > 0), 1, {ratio}))"
    angle = f"where({height} > {width}, {_PI / 2} - {angle}, {angle})"
    angle = f"where({_negative('other')}, {_PI} - {angle}, {angle})"
    # not by Neg, which ONNX Runtime computes as a difference: of 0 it is 0, not -0
    return f"{angle} * where({_negative('input')}, -1, 1)"


def _logsumexp() -> str:
    """With the greatest finite element taken out of the sum."""
    out = "clamp(amax(input, dim, True), -finfo(input).max, finfo(input).max)"
    return f"log(sum(exp(input - {out}), dim, True)) + {out}"


def _vector_norm() -> str:
    """The root of the sum of squares of the row over its greatest magnitude, times that: nothing overflows."""
    most = "amax(abs(input), dim, True)"
    scale = f"where({most} == 0, 1, {most})"
    return f"sqrt(sum((input / {scale}) * (input / {scale}), dim, True)) * {scale}"


OTHERWISE: Final = {
    "masked_fill": "where(mask, value, input)",
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), "matmul(input, other)"),
}
"""What is another operator of ONNX under a name of its own."""

FORMULAS: Final = {
    **OTHERWISE,
    "square": "input * input",
    "rsqrt": "reciprocal(sqrt(input))",
    "log2": "log(input) / 0.6931471805599453",
    "log10": "log(input) / 2.302585092994046",
    "logsigmoid": "-softplus(-input)",
    "log1p": _log1p(),
    "expm1": _expm1(),
    "logaddexp": "maximum(input, other) + softplus(-abs(input - other))",
    "hypot": _hypot(),
    "copysign": f"where({_negative('other')}, -abs(input), abs(input))",
    "atan2": _atan2(),
    "isfinite": "input - input == 0",  # the difference of an infinity with itself is no number
    "isinf": "abs(input) > finfo(input).max",
    "detach": "input",
    "xlogy": "where(input == 0, 0, input * log(where(input == 0, 1, other)))",
}

ROWS: Final = {"logsumexp": _logsumexp(), "vector_norm": _vector_norm()}
"""Of a row, whose dimension each formula keeps."""
