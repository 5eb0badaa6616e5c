"""The functions that operators are made of, on variables of a tape: value and adjoint of each."""

# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# The functions of a table have one signature, of which not every one reads all.
# ruff: noqa: ARG001, ARG002, ARG005

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from whynan.verify.oracle.balls import Ball, floor
from whynan.verify.oracle.elements import plain
from whynan.verify.oracle.tape import Tape, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.verify.oracle.elements import Array

# The derivative of each function of one number: of x and of the value y, as a factor of the gradient or its inverse.
_FACTORS: Final[dict[str, Callable[[Functions, Any, Any], Any]]] = {
    "exp": lambda f, x, y: y,
    "expm1": lambda f, x, y: f.elementwise("exp", x),
    "sin": lambda f, x, y: f.elementwise("cos", x),
    "cos": lambda f, x, y: f.e.neg(f.elementwise("sin", x)),
    "tan": lambda f, x, y: f.e.add(f.e.one, f.e.mul(y, y)),
    "sinh": lambda f, x, y: f.elementwise("cosh", x),
    "cosh": lambda f, x, y: f.elementwise("sinh", x),
    "sigmoid": lambda f, x, y: f.e.mul(y, f.elementwise("sigmoid", f.e.neg(x))),
    "erf": lambda f, x, y: f.bell(x),
    "erfc": lambda f, x, y: f.e.neg(f.bell(x)),
    "erfinv": lambda f, x, y: f.e.div(f.e.one, f.bell(y)),
    "i0": lambda f, x, y: f.elementwise("i1", x),
    "i1": lambda f, x, y: f.slope_of_bessel(x, y),
    "lgamma": lambda f, x, y: f.elementwise("digamma", x),
    "digamma": lambda f, x, y: f.elementwise("trigamma", x),
}
_DIVISORS: Final[dict[str, Callable[[Functions, Any, Any], Any]]] = {
    "log": lambda f, x, y: x,
    "log1p": lambda f, x, y: f.e.add(f.e.one, x),
    "sqrt": lambda f, x, y: f.e.mul(f.e.two, y),
    "asin": lambda f, x, y: f.elementwise("sqrt", f.rest_of_square(x)),
    "acos": lambda f, x, y: f.e.neg(f.elementwise("sqrt", f.rest_of_square(x))),
    "atan": lambda f, x, y: f.e.add(f.e.one, f.e.mul(x, x)),
    "tanh": lambda f, x, y: f.squared("cosh", x),
    "asinh": lambda f, x, y: f.elementwise("sqrt", f.e.add(f.e.mul(x, x), f.e.one)),
    "acosh": lambda f, x, y: f.elementwise("sqrt", f.e.neg(f.rest_of_square(x))),
    "atanh": lambda f, x, y: f.rest_of_square(x),
    "inverse": lambda f, x, y: f.e.neg(f.e.mul(x, x)),
}


class Functions:
    """Functions of variables; numbers are taken as constants."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.e = tape.elements

    # -- of elements ---------------------------------------------------------------------------------------------

    def elementwise(self, name: str, x: Any) -> Any:
        """A function of one element."""
        return self.e.function(name)(x)

    def slope_of_bessel(self, x: Any, y: Any) -> Any:
        """The derivative of I1, of which y is the value: I0(x) - I1(x) / x, at 0 half of 1 (DLMF 10.29.2)."""
        whole = self.elementwise("i0", x)
        zero = self.e.sign(x) == 0
        return self.e.div(whole, self.e.two) if zero else self.e.sub(whole, self.e.div(y, x))

    def bell(self, x: Any) -> Any:
        """The derivative of the error function at an element: 2 exp(-x^2) / sqrt(pi)."""
        scale = self.e.div(self.e.two, self.elementwise("sqrt", Ball.pi()))
        return self.e.mul(scale, self.elementwise("exp", self.e.neg(self.e.mul(x, x))))

    def rest_of_square(self, x: Any) -> Any:
        """1 - x^2."""
        return self.e.mul(self.e.sub(self.e.one, x), self.e.add(self.e.one, x))

    def squared(self, name: str, x: Any) -> Any:
        """The square of a function."""
        value = self.elementwise(name, x)
        return self.e.mul(value, value)

    # -- of variables, element by element ------------------------------------------------------------------------

    def variable(self, x: Variable | float) -> Variable:
        """A number as a constant; a variable as it is."""
        return x if isinstance(x, Variable) else self.tape.constant(x)

    def unary(self, name: str, x: Variable) -> Variable:
        """A function of one number, by its name."""
        factor, divisor = _FACTORS.get(name), _DIVISORS.get(name)

        def partial(g: Any, x: Any, y: Any) -> Any:
            if self.e.is_undefined(y):  # outside of its domain a function has no derivative, whatever its formula gives
                return self.e.mul(g, y)
            if factor is not None:
                return self.e.mul(g, factor(self, x, y))
            return self.e.div(g, _DIVISORS[name](self, x, y))

        known = factor is not None or divisor is not None
        return self.tape.pointwise(self.e.function(name), (partial if known else None,), x)

    def add(self, x: Variable | float, y: Variable | float) -> Variable:
        """The sum."""
        to = lambda g, *_: g  # noqa: E731
        return self.tape.pointwise(self.e.add, (to, to), self.variable(x), self.variable(y))

    def sub(self, x: Variable | float, y: Variable | float) -> Variable:
        """The difference."""
        neg = self.e.neg
        return self.tape.pointwise(
            self.e.sub, (lambda g, *_: g, lambda g, *_: neg(g)), self.variable(x), self.variable(y)
        )

    def mul(self, x: Variable | float, y: Variable | float) -> Variable:
        """The product."""
        mul = self.e.mul
        partials = (lambda g, x, y, z: mul(g, y), lambda g, x, y, z: mul(g, x))
        return self.tape.pointwise(mul, partials, self.variable(x), self.variable(y))

    def div(self, x: Variable | float, y: Variable | float) -> Variable:
        """The quotient."""
        e = self.e
        partials = (lambda g, x, y, z: e.div(g, y), lambda g, x, y, z: e.neg(e.div(e.mul(g, e.div(x, y)), y)))
        return self.tape.pointwise(e.div, partials, self.variable(x), self.variable(y))

    def pow(self, x: Variable | float, y: Variable | float) -> Variable:
        """The power."""
        return self.tape.pointwise(
            self.e.pow, (self._pow_to_base, self._pow_to_exponent), self.variable(x), self.variable(y)
        )

    def _pow_to_base(self, g: Any, x: Any, y: Any, z: Any) -> Any:
        e = self.e
        if e.sign(y) == 0:
            return 0
        return e.mul(g, e.mul(y, e.pow(x, e.sub(y, e.one))))

    def _pow_to_exponent(self, g: Any, x: Any, y: Any, z: Any) -> Any:
        e = self.e
        if e.sign(x) == 0 and e.sign(y) in (0, 1):
            return 0
        return e.mul(g, e.mul(z, self.elementwise("log", x)))

    def atan2(self, y: Variable, x: Variable) -> Variable:
        """The angle of the point (x, y)."""
        e = self.e

        def square(y: Any, x: Any) -> Any:
            return e.add(e.mul(y, y), e.mul(x, x))

        to_y = lambda g, y, x, z: e.div(e.mul(g, x), square(y, x))  # noqa: E731
        to_x = lambda g, y, x, z: e.neg(e.div(e.mul(g, y), square(y, x)))  # noqa: E731
        return self.tape.pointwise(e.atan2, (to_y, to_x), y, x)

    def pi(self) -> Variable:
        """The number pi."""
        return Variable(plain(Ball.pi()))

    def neg(self, x: Variable) -> Variable:
        """The number with the other sign."""
        return self.tape.pointwise(self.e.neg, (lambda g, *_: self.e.neg(g),), x)

    def abs(self, x: Variable) -> Variable:
        """The magnitude; its gradient at 0 is 0, and none where that is a part of an infinite one."""
        e = self.e

        def partial(g: Any, x: Any, y: Any) -> Any:
            sign = e.sign(x)
            if sign is None:
                return x if e.is_undefined(x) else e.hull(g, e.neg(g))
            if sign == 0:
                return math.nan if e.is_infinite(g) or e.is_undefined(g) else 0
            return g if sign > 0 else e.neg(g)

        return self.tape.pointwise(e.abs, (partial,), x)

    def sqrt(self, x: Variable) -> Variable:
        """The square root."""
        return self.unary("sqrt", x)

    def square(self, x: Variable) -> Variable:
        """The square."""
        return self.mul(x, x)

    def exp(self, x: Variable) -> Variable:
        """The exponential."""
        return self.unary("exp", x)

    def log(self, x: Variable) -> Variable:
        """The natural logarithm."""
        return self.unary("log", x)

    def sigmoid(self, x: Variable) -> Variable:
        """1 / (1 + exp(-x))."""
        return self.unary("sigmoid", x)

    def softplus(self, x: Variable) -> Variable:
        """log(1 + exp(x))."""
        return self.unary("log1p", self.exp(x))

    def relu(self, x: Variable) -> Variable:
        """The positive part; its gradient at 0 is 0."""
        return self.choose(self.is_above(0.0, x, or_equal=True), self.zeros(x), x)

    # -- questions -----------------------------------------------------------------------------------------------

    def compare(self, x: Variable, y: Variable, orders: Sequence[int], of_nan: bool = False) -> Array:
        """Where the first stands to the second in one of these orders: -1 less, 0 equal, 1 greater."""
        e = self.e

        def asked(x: Any, y: Any) -> bool | None:
            if e.is_undefined(x) or e.is_undefined(y):
                return of_nan
            order = e.order(x, y)
            return None if order is None else order in orders

        return self.tape.decide(asked, x, y)

    def is_above(self, x: Variable | float, y: Variable | float, or_equal: bool = False) -> Array:
        """Where x is greater than y."""
        return self.compare(self.variable(x), self.variable(y), (0, 1) if or_equal else (1,))

    def truth(self, x: Variable) -> Array:
        """A variable as a mask: what is not 0 is True."""

        def asked(x: Any) -> bool | None:
            if self.e.is_undefined(x):
                return True
            sign = self.e.sign(x)
            return None if sign is None else sign != 0

        return self.tape.decide(asked, x)

    def from_mask(self, mask: Array) -> Variable:
        """A mask as a variable of 1 and 0."""
        one, zero = self.e.one, self.e.zero
        return self.tape.pointwise(
            lambda asked: one if asked else zero if asked is not None else None, (None,), Variable(mask)
        )

    def choose(self, mask: Array, chosen: Variable | float, other: Variable | float) -> Variable:
        """One where the mask is True, else the other."""
        return self.tape.choose(mask, self.variable(chosen), self.variable(other))

    def zeros(self, like: Variable) -> Variable:
        """Zeros of the same shape."""
        return self.tape.full(like.shape, self.e.zero)

    def maximum(self, x: Variable | float, y: Variable | float) -> Variable:
        """The larger; equal ones share the gradient."""
        return self._extreme(self.variable(x), self.variable(y), 1)

    def minimum(self, x: Variable | float, y: Variable | float) -> Variable:
        """The smaller; equal ones share the gradient."""
        return self._extreme(self.variable(x), self.variable(y), -1)

    def _extreme(self, x: Variable, y: Variable, order: int) -> Variable:
        e = self.e
        bad = self.tape.decide(lambda x, y: e.is_undefined(x) or e.is_undefined(y), x, y)
        first, same = self.compare(x, y, (order,)), self.compare(x, y, (0,))
        shared = self.mul(self.add(x, y), 0.5)
        return self.choose(bad, self.add(x, y), self.choose(first, x, self.choose(same, shared, y)))

    def clamp(
        self, x: Variable, low: Variable | float | None, high: Variable | float | None, inclusive: bool = True
    ) -> Variable:
        """The number brought between two others; the gradient goes through at the ends where they are inclusive."""
        found = x
        if low is not None:
            found = self.choose(self.is_above(low, found, or_equal=not inclusive), low, found)
        if high is not None:
            found = self.choose(self.is_above(found, high, or_equal=not inclusive), high, found)
        return found

    def rounded(self, x: Variable, how: str) -> Variable:
        """A whole number nearby: ``floor``, ``ceil``, ``trunc``, or ``round``, half to even; it stops gradients."""
        e = self.e

        def nearest(x: Any) -> int | None:
            low, twice = floor(x), floor(x + x)
            if low is None or twice is None:
                return None
            if x + x == twice:
                return low if twice == 2 * low else low + low % 2
            return low + (twice - 2 * low)

        def value(x: Any) -> Any:
            if type(x) is not Ball:
                return x
            if how == "round":
                found = nearest(x)
            elif how == "floor" or (how == "trunc" and e.sign(x) == 1):
                found = floor(x)
            else:
                below = floor(-x)
                found = None if below is None else -below
            return None if found is None else Ball(found)

        return Variable(self.tape.decide(value, x))

    # -- along dimensions ----------------------------------------------------------------------------------------

    def dims(self, x: Variable, dims: Sequence[int] | int | None) -> tuple[int, ...]:
        """Dimensions counted from the front; all of them for None and for none."""
        if dims is None or (not isinstance(dims, int) and len(dims) == 0):
            return tuple(range(x.rank))
        listed = (dims,) if isinstance(dims, int) else dims
        return tuple(sorted(dim % x.rank for dim in listed)) if x.rank else ()

    def count(self, x: Variable, dims: Sequence[int]) -> int:
        """How many elements are in a row over some dimensions."""
        return math.prod(x.shape[dim] for dim in dims)

    def mean(self, x: Variable, dims: Sequence[int], keepdim: bool = False) -> Variable:
        """The mean."""
        return self.div(self.tape.sum(x, dims, keepdim), float(self.count(x, dims)))

    def variance(self, x: Variable, dims: Sequence[int], correction: float = 0.0, keepdim: bool = False) -> Variable:
        """The mean square of the distances from the mean, with Bessel's correction."""
        apart = self.sub(x, self.mean(x, dims, keepdim=True))
        freedom = max(0.0, self.count(x, dims) - correction)
        return self.div(self.tape.sum(self.square(apart), dims, keepdim), freedom)

    def top(self, x: Variable, dims: Sequence[int]) -> Variable:
        """About the largest of each row, through which no gradient goes, 0 where that is no number: a shift for exp."""
        e = self.e

        def larger(x: Any, y: Any) -> Any:
            if type(x) is not Ball or type(y) is not Ball:
                return y if x == -math.inf else x
            return y if e.order(x, y) == -1 else x

        return Variable(self.tape.fold(x, dims, larger, lambda x: x if type(x) is Ball else e.zero))

    def logsumexp(self, x: Variable, dims: Sequence[int], keepdim: bool = False) -> Variable:
        """log(sum(exp(x)))."""
        shift = self.top(x, dims)
        total = self.log(self.tape.sum(self.exp(self.sub(x, shift)), dims, keepdim))
        return self.add(total, shift if keepdim else Variable(shift.data.reshape(total.shape)))

    def log_softmax(self, x: Variable, dim: int) -> Variable:
        """x - logsumexp(x) along a dimension."""
        dims = self.dims(x, dim)
        return self.sub(x, self.logsumexp(x, dims, keepdim=True))

    def softmax(self, x: Variable, dim: int) -> Variable:
        """exp(x) / sum(exp(x)) along a dimension."""
        dims = self.dims(x, dim)
        raised = self.exp(self.sub(x, self.top(x, dims)))
        return self.div(raised, self.tape.sum(raised, dims, keepdim=True))
