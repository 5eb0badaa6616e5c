"""What the exact values of a program came to, and how they compare with floating-point numbers."""

# pyright: strict

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from whynan.floats.formats import FORMATS
from whynan.verify.oracle.balls import Ball, midpoint, precision, radius

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from whynan.verify.oracle.elements import Array, Elements

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Balls:
    """An array of exact values of a dtype: balls, infinities, what is undefined, and None for what is undecided.

    ``bits`` is the precision that the balls were made with. What is asked of a dtype without fractions is asked of
    float64.
    """

    elements: Array
    dtype: str
    bits: int
    arithmetic: Elements = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self.elements.shape

    def midpoint(self) -> Floats:
        """The values as float64: infinite where they are, and beyond its range; NaN where there is none."""
        return self._each(self._midpoint, np.float64)

    def radius(self) -> Floats:
        """At most so far is the value from the middle of its ball; infinite where it is undecided."""
        return self._each(self._radius, np.float64)

    def nearest(self, dtype: str | None = None) -> Floats:
        """The values rounded to a dtype, infinite beyond its range; NaN where there is none."""
        form = FORMATS.get(dtype or self.dtype, FORMATS["float64"])

        def rounded(x: Any) -> float:
            middle = self._midpoint(x)
            if not math.isfinite(middle) or middle == 0:
                return middle
            step = form.ulp(min(abs(middle), form.max))
            near = math.copysign(round(abs(middle) / step) * step, middle)
            return near if abs(near) <= form.max else math.copysign(math.inf, near)

        return self._each(rounded, np.float64)

    def undecided(self, dtype: str | None = None) -> Mask:
        """Where the ball is too wide to tell the value within a quarter of a unit in the last place of a dtype."""
        form = FORMATS.get(dtype or self.dtype, FORMATS["float64"])

        def asked(x: Any) -> bool:
            if type(x) is not Ball:
                return x is None
            reach = radius(x)
            if reach == 0:
                return False
            low = max(0.0, abs(midpoint(x)) - reach)
            # a quarter of the smallest float64 is none: there a half does, which is what the least radius stands for
            return not (reach <= max(form.ulp(min(low, form.max)) / 4, 2.0**-1074))

        return self._each(asked, np.bool_)

    def infinite(self) -> Mask:
        """Where the exact value is infinite: at a pole, or of an infinity that came in."""
        return self._each(self.arithmetic.is_infinite, np.bool_)

    def undefined(self) -> Mask:
        """Where there is no exact value: 0/0, 0 * Inf, outside of a domain, or of a NaN that came in."""
        return self._each(self.arithmetic.is_undefined, np.bool_)

    def beyond(self, dtype: str | None = None) -> Mask:
        """Where the exact value is finite and rounds to no finite number of a dtype."""
        form = FORMATS.get(dtype or self.dtype, FORMATS["float64"])
        e = self.arithmetic
        limit = e.add(e.of(form.max), e.of(form.ulp(form.max) / 2))

        def asked(x: Any) -> bool:
            return type(x) is Ball and e.order(e.abs(x), limit) in (0, 1)

        return self._each(asked, np.bool_)

    def distance(self, values: Any) -> Floats:
        """How far some numbers are from the exact ones, at least and exactly to float64; NaN where either is bad.

        The difference is taken in balls, so that it is told even where both round to the same float64.
        """

        def apart(x: Any, value: Any) -> float:
            if type(x) is not Ball or not math.isfinite(value):
                return math.nan
            return abs(midpoint(x - float(value)))

        with precision(self.bits):
            found = np.frompyfunc(apart, 2, 1)(self.elements, np.asarray(values, dtype=np.float64))
        return np.asarray(found, dtype=np.float64)

    def _midpoint(self, x: Any) -> float:
        if type(x) is Ball:
            return midpoint(x)
        return math.nan if x is None else float(x)

    def _radius(self, x: Any) -> float:
        if type(x) is Ball:
            return radius(x)
        return math.inf if x is None else 0.0

    def _each(self, function: Callable[[Any], Any], dtype: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(np.frompyfunc(function, 1, 1)(self.elements), dtype=dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """The exact outputs of a program and the gradients of its differentiable inputs, by name.

    ``bits`` is the precision that they took, ``undecided`` how many elements it did not suffice for, and ``casts`` the
    casts to narrower dtypes on the way, whose rounding the exact values do not have.
    """

    outputs: Mapping[str, Balls]
    gradients: Mapping[str, Balls]
    bits: int
    casts: tuple[str, ...] = ()

    @property
    def undecided(self) -> int:
        """How many elements of all outputs and gradients are undecided, each in its own dtype."""
        return sum(int(balls.undecided().sum()) for balls in (*self.outputs.values(), *self.gradients.values()))
