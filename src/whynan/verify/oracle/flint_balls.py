"""Ball arithmetic by python-flint's ``arb``."""

# pyright: strict

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import flint

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_ARB: Any = flint.arb
_CONTEXT: Any = flint.ctx


def _finite(ball: Any) -> Any:
    return ball if ball.is_finite() else None


def _named(name: str) -> Callable[[Any], Any]:
    function = getattr(_ARB, name)
    return lambda x: _finite(function(x))


def _inverse(x: Any) -> Any:
    return _finite(1 / x)


class FlintBalls:
    """Balls of python-flint: a midpoint of the precision asked for and a radius of 30 bits."""

    kind: type = _ARB

    def __init__(self) -> None:
        names = """
            exp expm1 log log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
            erf erfc erfinv digamma
        """
        self.functions = {name: _named(name) for name in names.split()}
        self.functions["lgamma"] = _lgamma
        self.functions["trigamma"] = _trigamma
        self.functions["sigmoid"] = lambda x: _inverse(1 + (-x).exp())
        self.functions["inverse"] = _inverse

    @contextmanager
    def precision(self, bits: int) -> Generator[None]:
        """Work with so many bits inside the block."""
        before = _CONTEXT.prec
        _CONTEXT.prec = bits
        try:
            yield
        finally:
            _CONTEXT.prec = before

    def ball(self, number: float) -> Any:
        """The exact ball of a finite number."""
        return _ARB(number)

    def less(self, one: Any, other: Any) -> bool:
        """Whether one is certainly less than the other."""
        return bool(one < other)

    def equal(self, one: Any, other: Any) -> bool:
        """Whether both are exact and the same."""
        return bool(one == other)

    def quotient(self, one: Any, other: Any) -> Any:
        """The quotient by a ball without 0."""
        return _finite(one / other)

    def power(self, base: Any, exponent: Any) -> Any:
        """A positive ball to the power of another."""
        return _finite(base**exponent)

    def atan2(self, y: Any, x: Any) -> Any:
        """The angle of a point, which is not the origin."""
        return _finite(_ARB.atan2(y, x))

    def hull(self, one: Any, other: Any) -> Any:
        """A ball around both."""
        return one.union(other)

    def floor(self, one: Any) -> int | None:
        """The largest integer not above the ball; None where it is not the same throughout."""
        found = one.floor().unique_fmpz()
        return None if found is None else int(found)

    def exactly(self, one: Any) -> float | None:
        """The number that an exact ball is; None of another, and of one that is no float64."""
        if not one.is_exact():
            return None
        near = float(one)
        return near if math.isfinite(near) and one == near else None

    def midpoint(self, one: Any) -> float:
        """The middle, rounded to float64; infinite beyond its range."""
        return float(one.mid())

    def radius(self, one: Any) -> float:
        """At least the radius, as float64."""
        return 0.0 if one.is_exact() else math.nextafter(float(one.rad()), math.inf)


def _lgamma(x: Any) -> Any:
    if x > 0:
        return _finite(x.lgamma())
    size = abs(x.gamma())
    return _finite(size.log()) if size.is_finite() and size > 0 else None


def _trigamma(x: Any) -> Any:
    if x > 0:
        return _finite(_ARB(2).zeta(x))
    # by reflection (Abramowitz, Stegun 6.4.7)
    near = (_ARB.pi() / (_ARB.pi() * x).sin()) ** 2
    return _finite(near - _ARB(2).zeta(1 - x))
