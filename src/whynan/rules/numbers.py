"""Numbers in a rule's sentence: exact results far beyond any format, and by how much they are out of range."""

# pyright: strict

from __future__ import annotations

import math
from decimal import Context, Decimal, Overflow
from typing import TYPE_CHECKING

from whynan.errors import UsageError
from whynan.floats import format_of, format_value

if TYPE_CHECKING:
    from collections.abc import Callable

_WIDER = {"float16": ("bfloat16", "float32"), "bfloat16": ("float32", "float64"), "float32": ("float64",)}
# 30 digits: every float64 product is exact enough to be told from the limit of its format.
_CONTEXT = Context(prec=30, Emax=999_999, Emin=-999_999)


def text(value: float | None) -> str:
    """A value as the report shows it."""
    return format_value(value)


def maximum(dtype: str) -> float | None:
    """The largest finite number of a dtype; None where it is no floating-point format."""
    try:
        return format_of(dtype).max
    except UsageError:
        return None


def smallest(dtype: str) -> float | None:
    """The smallest positive number of a dtype; None where it is no floating-point format."""
    try:
        return format_of(dtype).smallest_subnormal
    except UsageError:
        return None


def exact(compute: Callable[[Context], Decimal]) -> Decimal | None:
    """The result of a computation in 30 digits; None where even its exponent has no room."""
    try:
        return compute(_CONTEXT)
    except Overflow:
        return None


def product(*factors: float) -> Decimal | None:
    """The exact product of finite numbers."""

    def multiply(context: Context) -> Decimal:
        result = Decimal(1)
        for factor in factors:
            result = context.multiply(result, Decimal(factor))
        return result

    return exact(multiply) if all(math.isfinite(f) for f in factors) else None


def decimal_text(value: Decimal | None) -> str:
    """An exact result with three digits: ``4.05e39``."""
    if value is None:
        return "more than 1e999999"
    if value == 0 or -300 < value.adjusted() < 300:
        return format_value(float(value))
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def beyond(value: Decimal | None, dtype: str, *, shown: bool = True) -> str:
    """``90000 exceeds the float16 maximum 65504``, with as many digits as it takes to see it.

    The number itself is left out where the sentence has just written it (``shown=False``).
    """
    limit = maximum(dtype)
    if limit is None:
        return f"{decimal_text(value)} is out of the range of {dtype}"
    negative = value is not None and value < 0
    number, bound, digits = decimal_text(value), format_value(limit, digits=2), 2
    while value is not None and number.lstrip("-") == bound and digits < 12:
        digits += 1
        number, bound = format_value(float(value), digits=max(digits, 3)), format_value(limit, digits=digits)
    side = f"lies below the {dtype} minimum -{bound}" if negative else f"exceeds the {dtype} maximum {bound}"
    return f"{number} {side}" if shown else side


def overflows(value: Decimal | None, dtype: str) -> bool:
    """Whether an exact result rounds to Inf in a dtype; a result without room even for its exponent does."""
    limit = maximum(dtype)
    if limit is None or value is None:
        return limit is not None
    # half a unit in the last place above the maximum still rounds to it
    return abs(value) >= Decimal(limit) + Decimal(format_of(dtype).ulp(limit)) / 2


def wider(value: Decimal | None, dtype: str) -> str:
    """``it fits bfloat16 and float32``; empty where no usual format is wide enough, or the result is not known."""
    if value is None or dtype not in _WIDER:
        return ""
    fits = [name for name in _WIDER[dtype] if not overflows(value, name)]
    return f"it fits {' and '.join(fits)}" if fits else ""
