"""A cause that is 0 only because its dtype has no number so small."""

# pyright: strict

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from whynan.errors import UsageError
from whynan.floats import format_of, format_value

if TYPE_CHECKING:
    from whynan.records import Finding, Note

_WORDS: Final = {"mul": "×", "Mul": "×", "pow": "**", "Pow": "**"}


class _Attempt(NamedTuple):
    words: str
    exact: float


def underflow(finding: Finding) -> str:
    """What is said of a chain that begins with a product, power or exponential that underflowed; else nothing."""
    first = next((link for link in finding.chain if link.role == "cause"), None)
    attempt = None if first is None else _attempted(first.typed_summary)
    dtype = None if attempt is None else _too_coarse(attempt.exact, finding.element.dtype)
    if attempt is None or dtype is None:
        return ""
    wide = next((w for w in ("float32", "float64") if abs(attempt.exact) >= format_of(w).tiny), None)
    if wide is None:
        return ""
    return f" That 0 is an underflow of {dtype}: in {wide} {attempt.words} is {format_value(attempt.exact)}."


def _attempted(said: Note) -> _Attempt | None:
    """What a product, power or exponential would be that is told to be 0; None where it is none."""
    if said.kind != "computed" or said.values["result"] != 0:
        return None
    operator, operands = str(said.values["operator"]), _numbers(said.values["operands"])
    if operator in ("exp", "Exp") and len(operands) == 1:
        (a,) = operands
        return _Attempt(f"exp({format_value(a)})", math.exp(a)) if a < 0 else None
    if operator not in _WORDS or not said.values["arithmetic"] or len(operands) != 2:
        return None
    (a, b), sign = operands, _WORDS[operator]
    second = format_value(b)
    words = f"{format_value(a)} {sign} {f'({second})' if b < 0 else second}"
    if sign == "×":
        return _Attempt(words, a * b)
    return _Attempt(words, a**b) if a > 0 or (a and b.is_integer()) else None


def _numbers(operands: object) -> tuple[float, ...]:
    """The operands of a step as it shows them; none where one is no finite number."""
    held = cast("tuple[object, ...]", operands) if isinstance(operands, tuple) else ()
    numbers = [float(v) for v in held if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    return tuple(float(format_value(v, digits=4)) for v in numbers) if len(numbers) == len(held) else ()


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
