"""Ball arithmetic by python-flint: balls that enclose a real number, and comparisons that are true when certain."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import flint

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

Ball: Any = flint.arb
"""A midpoint of the current precision and a radius of 30 bits, 0 of a number; ``==`` holds of exact balls only."""
precision: Any = flint.ctx.workprec
"""A block in which new midpoints have so many bits."""


_ends: ContextVar[float] = ContextVar("_ends", default=math.inf)


class TimeIsOverError(Exception):
    """The time is over that exact values may take."""


@contextmanager
def ends_at(processor_time: float) -> Generator[None]:
    """A block that goes on no longer than to a processor time of the process, as far as exact values take it."""
    token = _ends.set(processor_time)
    try:
        yield
    finally:
        _ends.reset(token)


_EACH: Final = 5e-3
"""The processor time is asked for once in so many seconds: with many threads the question itself takes long."""
_asked = 0.0


def check_time() -> None:
    """Raise ``TimeIsOverError`` where the time is over."""
    global _asked
    now = time.perf_counter()
    if now - _asked < _EACH:
        return
    _asked = now
    if time.process_time() > _ends.get():
        raise TimeIsOverError


def product(rows: Sequence[Sequence[Any]], columns: Sequence[Sequence[Any]]) -> list[Any]:
    """The entries of a product of two matrices of balls, row by row."""
    return (flint.arb_mat(rows) * flint.arb_mat(columns)).entries()


def finite(x: Any) -> Any:
    """A ball that is finite; None of another."""
    return x if x.is_finite() else None


def floor(x: Any) -> int | None:
    """The largest integer not above a ball; None where it is not the same throughout."""
    found = x.floor().unique_fmpz()
    return None if found is None else int(found)


def exact_number(x: Any) -> float | None:
    """The float64 that an exact ball is; None of another."""
    near = midpoint(x)
    return near if math.isfinite(near) and x == near else None


def midpoint(x: Any) -> float:
    """The middle, rounded to float64; infinite beyond its range."""
    return float(x.mid())


def radius(x: Any) -> float:
    """At least the radius, as float64."""
    return 0.0 if x.is_exact() else math.nextafter(float(x.rad()), math.inf)


def _function(name: str) -> Callable[[Any], Any]:
    function = getattr(Ball, name)
    return lambda x: finite(function(x))


def _lgamma(x: Any) -> Any:
    if x > 0:
        return finite(x.lgamma())
    size = abs(x.gamma())
    return finite(size.log()) if size.is_finite() and size > 0 else None


def _trigamma(x: Any) -> Any:
    if x > 0:
        return finite(Ball(2).zeta(x))
    # by reflection (Abramowitz, Stegun 6.4.7)
    near = (Ball.pi() / (Ball.pi() * x).sin()) ** 2
    return finite(near - Ball(2).zeta(1 - x))


_SAME_NAMES: Final = """
    exp expm1 log log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv digamma
"""
FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    **{name: _function(name) for name in _SAME_NAMES.split()},
    "lgamma": _lgamma,
    "trigamma": _trigamma,
    "i0": lambda x: finite(x.bessel_i(0)),
    "i1": lambda x: finite(x.bessel_i(1)),
    "sigmoid": lambda x: finite(1 / (1 + (-x).exp())),
    "inverse": lambda x: finite(1 / x),
}
"""Functions of one ball inside their domain, by PyTorch's names; None where there is no finite ball."""
