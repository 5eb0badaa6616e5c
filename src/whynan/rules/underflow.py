"""A cause that is 0 only because its dtype has no number so small."""

# pyright: strict

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.errors import UsageError
from whynan.floats import format_of, format_value

if TYPE_CHECKING:
    from whynan.records import Finding

_NUMBER: Final = r"-?[\d.]+(?:e[-+]?\d+)?"
_ZERO: Final = r"is -?0(?![.\d])"
_PRODUCT: Final = re.compile(rf"(?P<a>{_NUMBER}) (?P<how>times|to the power) (?P<b>{_NUMBER}) {_ZERO}")
_EXP: Final = re.compile(rf"[Ee]xp of (?P<a>{_NUMBER}) {_ZERO}")


class _Attempt(NamedTuple):
    words: str
    exact: float


def underflow(finding: Finding) -> str:
    """What is said of a chain that begins with a product, power or exponential that underflowed; else nothing."""
    first = next((link for link in finding.chain if link.role == "cause"), None)
    attempt = None if first is None else _attempted(first.summary)
    dtype = None if attempt is None else _too_coarse(attempt.exact, finding.element.dtype)
    if attempt is None or dtype is None:
        return ""
    wide = next((w for w in ("float32", "float64") if abs(attempt.exact) >= format_of(w).tiny), None)
    if wide is None:
        return ""
    return f" That 0 is an underflow of {dtype}: in {wide} {attempt.words} is {format_value(attempt.exact)}."


def _attempted(summary: str) -> _Attempt | None:
    """What a product, power or exponential would be that is told to be 0; None where it is none."""
    if found := _EXP.match(summary):
        a = float(found["a"])
        return _Attempt(f"exp({format_value(a)})", math.exp(a)) if a < 0 else None
    found = _PRODUCT.match(summary)
    if found is None:
        return None
    a, b = float(found["a"]), float(found["b"])
    sign = "×" if found["how"] == "times" else "**"
    second = format_value(b)
    words = f"{format_value(a)} {sign} {f'({second})' if b < 0 else second}"
    if sign == "×":
        return _Attempt(words, a * b)
    return _Attempt(words, a**b) if a > 0 or (a and b.is_integer()) else None


def _too_coarse(exact: float, dtype: str) -> str | None:
    """The dtype in which a number that is not 0 rounds to it: the birth's own, or float16, the only one so coarse.

    Half of the smallest number rounds to 0; less is asked, because the values of a chain are rounded themselves.
    """
    if exact == 0:
        return None
    try:
        if abs(exact) < 0.49 * format_of(dtype).smallest_subnormal:
            return dtype
    except UsageError:
        return None
    coarse = format_of("bfloat16").smallest_subnormal < abs(exact) < 0.49 * format_of("float16").smallest_subnormal
    return "float16" if coarse else None
