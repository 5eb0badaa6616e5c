"""Ball arithmetic by mpmath's intervals, for want of python-flint; what mpmath lacks is made from what it has."""

# pyright: strict

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mpmath  # pyright: ignore[reportMissingTypeStubs]
from mpmath import libmp  # pyright: ignore[reportMissingTypeStubs]

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_MP: Any = mpmath
_IV: Any = _MP.iv
_LIBMP: Any = libmp
_MARGIN = 32


def _finite(x: Any) -> Any:
    return x if all(_MP.isfinite(end) for end in _ends(x)) else None


def _ends(x: Any) -> tuple[Any, Any]:
    """Both ends, exactly: numbers of mpmath made without rounding."""
    low, high = x._mpi_
    return _MP.mp.make_mpf(low), _MP.mp.make_mpf(high)


def _between(low: Any, high: Any) -> Any:
    return _IV.make_mpf((low._mpf_, high._mpf_))


@contextmanager
def _more(bits: int) -> Generator[None]:
    before = _IV.prec
    _IV.prec = before + bits
    try:
        yield
    finally:
        _IV.prec = before


def _size(x: Any) -> int:
    """The exponent of two of the magnitude nearest to 0 of an interval; of one that holds 0, that of its precision."""
    nearest = min(abs(end) for end in _ends(x))
    return -_IV.prec if nearest == 0 or 0 in x else int(_MP.mag(nearest))


def _expm1(x: Any) -> Any:
    with _more(_MARGIN + max(0, -_size(x))):
        return _IV.exp(x) - 1


def _log1p(x: Any) -> Any:
    with _more(_MARGIN + max(0, -_size(x))):
        return _IV.log(1 + x)


def _sinh(x: Any) -> Any:
    with _more(_MARGIN + max(0, -_size(x))):
        return (_IV.exp(x) - _IV.exp(-x)) / 2


def _cosh(x: Any) -> Any:
    return (_IV.exp(x) + _IV.exp(-x)) / 2


def _tanh(x: Any) -> Any:
    if _ends(x)[0] < 0:
        return -_tanh_right(-x)
    return _tanh_right(x)


def _tanh_right(x: Any) -> Any:
    small = _expm1(-2 * x)
    return -small / (2 + small)


def _asinh(x: Any) -> Any:
    if _ends(x)[0] < 0:
        return -_log1p(-x + x * x / (1 + _IV.sqrt(1 + x * x)))
    return _log1p(x + x * x / (1 + _IV.sqrt(1 + x * x)))


def _acosh(x: Any) -> Any:
    return _log1p((x - 1) + _IV.sqrt((x - 1) * (x + 1)))


def _atanh(x: Any) -> Any:
    return _log1p(2 * x / (1 - x)) / 2


def _atan2(y: Any, x: Any) -> Any:
    return _IV.make_mpf(_LIBMP.libmpi.mpi_atan2(y._mpi_, x._mpi_, _IV.prec))


def _root_of_rest(x: Any) -> Any:
    rest = (1 - x) * (1 + x)
    low, high = _ends(rest)
    return _IV.sqrt(_between(max(low, _MP.mpf(0)), high))


def _asin(x: Any) -> Any:
    return _atan2(x, _root_of_rest(x))


def _acos(x: Any) -> Any:
    return _atan2(_root_of_rest(x), x)


def _atan(x: Any) -> Any:
    return _IV.make_mpf(_LIBMP.libmpi.mpi_atan(x._mpi_, _IV.prec))


def _tan(x: Any) -> Any:
    return _IV.make_mpf(_LIBMP.libmpi.mpi_tan(x._mpi_, _IV.prec))


def _erf_series(x: Any) -> Any:
    """By a series whose terms are of one sign, ``sum (2 x^2)^n / (2n+1)!!`` (Abramowitz, Stegun 7.1.6)."""
    square = 2 * x * x
    term = total = _IV.mpf(1)
    count = 0
    limit = _MP.ldexp(1, -_IV.prec - _MARGIN)
    while True:
        count += 1
        term = term * square / (2 * count + 1)
        total += term
        ratio = _ends(square)[1] / (2 * count + 3)
        if ratio < 0.5 and _ends(term)[1] < limit:
            break
    # the rest is below a geometric series of ratio 1/2
    total += _between(_MP.mpf(0), 2 * _ends(term)[1])
    return 2 * x * _IV.exp(-x * x) * total / _IV.sqrt(_IV.pi)


_FARTHEST = 60.0
"""Beyond it the series takes too many terms: there is no finite interval then but the limit's neighbourhood."""


def _erf(x: Any) -> Any:
    low, high = _ends(x)
    if high < -_FARTHEST or low > _FARTHEST:
        near = 1 - _erfc(abs(x))
        return near if low > 0 else -near
    return None if max(abs(low), abs(high)) > _FARTHEST else _erf_series(x)


def _erfc(x: Any) -> Any:
    low, high = _ends(x)
    if low > _FARTHEST:
        # 2/(x + sqrt(x^2 + 2)) < sqrt(pi) exp(x^2) erfc(x) <= 2/(x + sqrt(x^2 + 4/pi)) (Abramowitz, Stegun 7.1.13)
        scale = 2 * _IV.exp(-x * x) / _IV.sqrt(_IV.pi)
        inner = scale / (x + _IV.sqrt(x * x + 2))
        outer = scale / (x + _IV.sqrt(x * x + 4 / _IV.pi))
        return _between(_ends(inner)[0], _ends(outer)[1])
    lost = int(1.4427 * float(max(high, _MP.mpf(0))) ** 2) + 8
    with _more(_MARGIN + lost):
        inside = _erf(x)
        return None if inside is None else 1 - inside


def _erfinv(y: Any) -> Any:
    """Each end is found by Newton's method and proved by the sign of ``erf`` on both of its sides."""
    found = [_erfinv_of(end) for end in _ends(y)]
    return None if None in found else _between(_ends(found[0])[0], _ends(found[1])[1])


def _erfinv_of(y: Any) -> Any:
    if y == 0:
        return _IV.mpf(0)
    with _MP.workprec(_IV.prec + 2 * _MARGIN):
        middle = _MP.erfinv(y)
        reach = abs(middle) * _MP.ldexp(1, -_IV.prec)
        low, high = middle - reach, middle + reach
    with _more(2 * _MARGIN):
        below, above = _erf(_between(low, low)), _erf(_between(high, high))
        proved = below is not None and above is not None and _ends(below)[1] < y < _ends(above)[0]
    return _between(low, high) if proved else None


_BERNOULLI = 60


def _shifted(x: Any, power: int) -> tuple[Any, Any]:
    """An argument moved up until the asymptotic series serves, and the sum of ``1/(x+k)^power`` on the way."""
    passed = _IV.mpf(0)
    while _ends(x)[0] < _IV.prec // 2 + 20:
        passed += 1 / x**power
        x = x + 1
    return x, passed


def _digamma(x: Any) -> Any:
    """By the recurrence and the asymptotic series, whose error is below the first term left out (ibid. 6.3.18)."""
    if _ends(x)[0] <= 0:
        angle = _IV.pi * x
        return _digamma(1 - x) - _IV.pi * _IV.cos(angle) / _IV.sin(angle)
    x, passed = _shifted(x, 1)
    total = _IV.log(x) - 1 / (2 * x)
    for k in range(1, _BERNOULLI):
        total -= _bernoulli(2 * k) / (2 * k * x ** (2 * k))
    rest = abs(_bernoulli(2 * _BERNOULLI)) / (2 * _BERNOULLI * x ** (2 * _BERNOULLI))
    return total + rest * _IV.mpf([-1, 1]) - passed


def _lgamma(x: Any) -> Any:
    """The logarithm of the magnitude of gamma, by Stirling's series in the same way (ibid. 6.1.41)."""
    if _ends(x)[0] <= 0:
        return _IV.log(_IV.pi / abs(_IV.sin(_IV.pi * x))) - _lgamma(1 - x)
    passed = _IV.mpf(1)
    while _ends(x)[0] < _IV.prec // 2 + 20:
        passed *= x
        x = x + 1
    total = (x - _IV.mpf(0.5)) * _IV.log(x) - x + _IV.log(2 * _IV.pi) / 2
    for k in range(1, _BERNOULLI):
        total += _bernoulli(2 * k) / (2 * k * (2 * k - 1) * x ** (2 * k - 1))
    rest = abs(_bernoulli(2 * _BERNOULLI)) / (2 * _BERNOULLI * (2 * _BERNOULLI - 1) * x ** (2 * _BERNOULLI - 1))
    return total + rest * _IV.mpf([-1, 1]) - _IV.log(passed)


def _trigamma(x: Any) -> Any:
    """The derivative of digamma, the same way (ibid. 6.4.12)."""
    if _ends(x)[0] <= 0:
        return (_IV.pi / _IV.sin(_IV.pi * x)) ** 2 - _trigamma(1 - x)
    x, passed = _shifted(x, 2)
    total = 1 / x + 1 / (2 * x * x)
    for k in range(1, _BERNOULLI):
        total += _bernoulli(2 * k) / x ** (2 * k + 1)
    rest = abs(_bernoulli(2 * _BERNOULLI)) / x ** (2 * _BERNOULLI + 1)
    return total + rest * _IV.mpf([-1, 1]) + passed


def _bernoulli(index: int) -> Any:
    above, below = _MP.bernfrac(index)
    return _IV.mpf(above) / below


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": lambda x: _IV.exp(x),
    "expm1": _expm1,
    "log": lambda x: _IV.log(x),
    "log1p": _log1p,
    "sqrt": lambda x: _IV.sqrt(x),
    "sin": lambda x: _IV.sin(x),
    "cos": lambda x: _IV.cos(x),
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "erf": _erf,
    "erfc": _erfc,
    "erfinv": _erfinv,
    "lgamma": _lgamma,
    "digamma": _digamma,
    "trigamma": _trigamma,
    "sigmoid": lambda x: 1 / (1 + _IV.exp(-x)),
    "inverse": lambda x: 1 / x,
}


def _guarded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def found(x: Any) -> Any:
        result = function(x)
        return None if result is None else _finite(+result)

    return found


class Intervals:
    """Intervals of mpmath: both ends are numbers of the precision asked for."""

    kind: type = _IV.mpf(0).__class__

    def __init__(self) -> None:
        self.functions = {name: _guarded(function) for name, function in _FUNCTIONS.items()}

    @contextmanager
    def precision(self, bits: int) -> Generator[None]:
        """Work with so many bits inside the block."""
        before = _IV.prec
        _IV.prec = bits
        try:
            yield
        finally:
            _IV.prec = before

    def ball(self, number: float) -> Any:
        """The exact interval of a finite number."""
        end = _LIBMP.from_int(number) if isinstance(number, int) else _LIBMP.from_float(number)
        return _IV.make_mpf((end, end))

    def less(self, one: Any, other: Any) -> bool:
        """Whether one is certainly less than the other."""
        return (one < other) is True

    def equal(self, one: Any, other: Any) -> bool:
        """Whether both are exact and the same."""
        low, high = _ends(one)
        return low == high and (low, high) == _ends(self.ball(other) if isinstance(other, (int, float)) else other)

    def quotient(self, one: Any, other: Any) -> Any:
        """The quotient by an interval without 0."""
        return _finite(one / other)

    def power(self, base: Any, exponent: Any) -> Any:
        """A positive interval to the power of another."""
        return _finite(_IV.exp(exponent * _IV.log(base)))

    def atan2(self, y: Any, x: Any) -> Any:
        """The angle of a point, which is not the origin."""
        return _finite(_atan2(y, x))

    def hull(self, one: Any, other: Any) -> Any:
        """An interval around both."""
        (low, high), (lower, higher) = _ends(one), _ends(other)
        return _between(min(low, lower), max(high, higher))

    def floor(self, one: Any) -> int | None:
        """The largest integer not above the interval; None where it is not the same throughout."""
        low, high = (int(_MP.floor(end)) for end in _ends(one))
        return low if low == high else None

    def exactly(self, one: Any) -> float | None:
        """The number that an exact interval is; None of another, and of one that is no float64."""
        low, high = _ends(one)
        near = float(low)
        return near if low == high and math.isfinite(near) and low == near else None

    def midpoint(self, one: Any) -> float:
        """The middle, rounded to float64; infinite beyond its range."""
        low, high = _ends(one)
        with _MP.workprec(_IV.prec + _MARGIN):
            return float((low + high) / 2)

    def radius(self, one: Any) -> float:
        """At least the radius, as float64."""
        low, high = _ends(one)
        if low == high:
            return 0.0
        with _MP.workprec(_MARGIN):
            return math.nextafter(float(high - low), math.inf)
