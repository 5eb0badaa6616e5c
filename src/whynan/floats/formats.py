"""The number formats of tensors: their limits, and the distance between neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from whynan.errors import UsageError


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: its precision, and the exponents of its normal numbers.

    ``fraction_bits`` counts the stored bits of the significand, without the implied leading 1. ``max`` is stored, not
    derived, because formats without infinities spend their last codes differently. Values are Python floats, exact for
    every format listed here. Source: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0; OCP Microscaling 1.0.
    """

    name: str
    fraction_bits: int
    min_exponent: int
    max: float
    has_inf: bool = True
    has_subnormals: bool = True

    @cached_property
    def tiny(self) -> float:
        """The smallest normal number."""
        return math.ldexp(1.0, self.min_exponent)

    @cached_property
    def smallest_subnormal(self) -> float:
        """The smallest positive number; the smallest normal one where the format has no subnormal numbers."""
        return math.ldexp(1.0, self.min_exponent - self.fraction_bits) if self.has_subnormals else self.tiny

    @cached_property
    def eps(self) -> float:
        """The distance from 1 to the next larger number."""
        return math.ldexp(1.0, -self.fraction_bits)

    def ulp(self, value: float) -> float:
        """The distance between neighbours at ``value``; Inf beyond the format's maximum, NaN for NaN."""
        if math.isnan(value):
            return math.nan
        magnitude = abs(value)
        if magnitude > self.max:
            return math.inf
        # frexp's significand lies in [0.5, 1), hence the 1; below the smallest normal number the spacing is constant.
        exponent = math.frexp(magnitude)[1] - 1 if magnitude else self.min_exponent
        return math.ldexp(1.0, max(exponent, self.min_exponent) - self.fraction_bits)


def _below(exponent: int, units: int, fraction_bits: int) -> float:
    """The number ``units`` steps below 2 to the ``exponent``: how the maximum of a format is written."""
    return math.ldexp(math.ldexp(1.0, fraction_bits + 1) - units, exponent - fraction_bits - 1)


FORMATS: Final[dict[str, Format]] = {
    entry.name: entry
    for entry in (
        Format("float64", 52, -1022, math.ldexp(2.0 - math.ldexp(1.0, -52), 1023)),
        Format("float32", 23, -126, _below(128, 1, 23)),
        Format("bfloat16", 7, -126, _below(128, 1, 7)),
        Format("float16", 10, -14, _below(16, 1, 10)),
        Format("float8_e5m2", 2, -14, _below(16, 1, 2)),
        # The largest code is NaN and there is no Inf: the maximum is the second largest.
        Format("float8_e4m3fn", 3, -6, _below(9, 2, 3), has_inf=False),
        Format("float8_e5m2fnuz", 2, -15, _below(16, 1, 2), has_inf=False),
        Format("float8_e4m3fnuz", 3, -7, _below(8, 1, 3), has_inf=False),
        # Powers of two only, from 2**-127 on: a scale, with neither zero nor subnormal numbers.
        Format("float8_e8m0fnu", 0, -127, math.ldexp(1.0, 127), has_inf=False, has_subnormals=False),
    )
}

# A complex number is two numbers of its part's format; what holds a part out of range holds for the number.
_PARTS: Final[dict[str, str]] = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


def format_of(dtype: str) -> Format:
    """The format of a dtype by its name, with or without ``torch.`` before it; a complex one's is that of its parts.

    Raises ``UsageError`` for names that are no floating-point format.
    """
    name = dtype.rpartition(".")[2]
    found = FORMATS.get(_PARTS.get(name, name))
    if found is None:
        legal = ", ".join((*FORMATS, *_PARTS))
        raise UsageError(f"{dtype!r} is no floating-point format", f"give one of {legal}")
    return found


GREATEST_EXPONENTS: Final = {
    "float16": "11.086",
    "bfloat16": "88.5",
    "float32": "88.72283",
    "float64": "709.782712893384",
}
"""The greatest number whose exponential is finite in a dtype, with the digits that it takes."""


def smallest(dtype: str) -> float | None:
    """The smallest positive number of a dtype; None where it is no floating-point format."""
    try:
        return format_of(dtype).smallest_subnormal
    except UsageError:
        return None


def ulp(value: float, dtype: str) -> float:
    """The distance between neighbours of ``dtype`` at ``value``; Inf beyond its maximum, NaN for NaN."""
    return format_of(dtype).ulp(value)
