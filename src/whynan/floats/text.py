"""Numbers as the report shows them: short, and never so short that they say something else."""

from __future__ import annotations

import math
from typing import Final

from whynan.floats.formats import format_of

_FIXED: Final = range(-4, 6)
"""Decimal exponents that are written without an exponent."""


def format_value(value: object, *, digits: int = 3) -> str:
    """A value as compact text: ``1e-20``, ``0.785``, ``Inf``, ``NaN``; ``?`` for ``None``, which is unknown.

    Floats are rounded to ``digits`` significant digits, whole numbers below a million are written out, and a number
    that is not whole is given as many more digits as it takes not to look whole: 0.99999994 is not 1.
    """
    if value is None:
        return "?"
    if isinstance(value, float):
        return _float_text(value, digits)
    if isinstance(value, complex):
        sign = "-" if math.copysign(1.0, value.imag) < 0 and not math.isnan(value.imag) else "+"
        return f"{_float_text(value.real, digits)}{sign}{_float_text(abs(value.imag), digits)}j"
    return str(value)


def short_text(value: object) -> str:
    """A value in four digits; a flag, a text or None as Python writes it."""
    return str(value) if isinstance(value, bool | str) or value is None else format_value(value, digits=4)


def infinity(value: object) -> str:
    """What an infinite number is called: ``-Inf`` where it is the negative one, ``Inf`` for every other."""
    return "-Inf" if value == -math.inf else "Inf"


def describe_limit(dtype: str) -> str:
    """The maximum of a dtype as text: ``3.4e38`` for float32, ``65504`` for float16."""
    return format_value(format_of(dtype).max, digits=2)


def _float_text(value: float, digits: int) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    if value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    text = _rounded(value, digits)
    while not value.is_integer() and "e" not in text and float(text).is_integer():
        digits += 1
        text = _rounded(value, digits)
    return text


def _rounded(value: float, digits: int) -> str:
    """``value`` to so many significant digits, with an exponent (``3.4e38``) where the plain form would be long."""
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    exponent = int(power)
    if exponent in _FIXED:
        text = f"{value:.{max(digits - 1 - exponent, 0)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{exponent}"
