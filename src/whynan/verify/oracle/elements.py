"""Numbers one by one: a finite ball, or what has no ball: infinities, an undefined value, -0.0, the undecided."""

# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.verify.oracle.balls import FUNCTIONS, Ball, exact_number, finite, floor

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.object_]

UNDECIDED: Final = None
"""What could be a number or none: more bits may tell."""
NOTHING: Final = 0
"""The gradient of what has no part in a result: nothing times Inf is nothing. A plain integer, as no other element."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Where a function of one number ends: what it is at the ends of its domain, and at both infinities."""

    low: float = -math.inf
    high: float = math.inf
    at_low: float = math.nan
    at_high: float = math.nan


# A value at an end that is NaN here is the undefined one; an end with a finite value is computed like the inside.
_EDGES: Final = {
    "exp": Edges(at_low=0.0, at_high=math.inf),
    "expm1": Edges(at_low=-1.0, at_high=math.inf),
    "log": Edges(low=0.0, at_low=-math.inf, at_high=math.inf),
    "log1p": Edges(low=-1.0, at_low=-math.inf, at_high=math.inf),
    "sqrt": Edges(low=0.0, at_low=0.0, at_high=math.inf),
    "asin": Edges(-1.0, 1.0, -1.0, 1.0),
    "acos": Edges(-1.0, 1.0, 1.0, 0.0),
    "sinh": Edges(at_low=-math.inf, at_high=math.inf),
    "cosh": Edges(at_low=math.inf, at_high=math.inf),
    "tanh": Edges(at_low=-1.0, at_high=1.0),
    "asinh": Edges(at_low=-math.inf, at_high=math.inf),
    "acosh": Edges(low=1.0, at_low=0.0, at_high=math.inf),
    "atanh": Edges(-1.0, 1.0, -math.inf, math.inf),
    "erf": Edges(at_low=-1.0, at_high=1.0),
    "erfc": Edges(at_low=2.0, at_high=0.0),
    "erfinv": Edges(-1.0, 1.0, -math.inf, math.inf),
    "sigmoid": Edges(at_low=0.0, at_high=1.0),
    "i0": Edges(at_low=math.inf, at_high=math.inf),
    "i1": Edges(at_low=-math.inf, at_high=math.inf),
    "lgamma": Edges(at_low=math.inf, at_high=math.inf),
    "digamma": Edges(at_high=math.inf),
    "trigamma": Edges(at_high=0.0),
}
_WHOLE_POLES: Final = {"lgamma": math.inf, "digamma": math.nan, "trigamma": math.inf}
"""What the functions around the gamma function are at 0 and at the negative integers."""


def plain(value: Any) -> Array:
    """An array of objects, of rank 0 for a single element."""
    if isinstance(value, np.ndarray):
        return value
    made = np.empty((), dtype=object)
    made[()] = value
    return made


class Elements:
    """Arithmetic on elements, with IEEE 754's meaning wherever an operand has no ball, and on whole arrays of them."""

    def __init__(self) -> None:
        self.zero, self.one, self.two = (Ball(number) for number in (0, 1, 2))
        self.added = np.frompyfunc(self.add, 2, 1)
        self._functions: dict[str, Callable[[Any], Any]] = {"atan": self._atan, "inverse": self._inverse}

    # -- what an element is --------------------------------------------------------------------------------------

    def from_number(self, number: Any) -> Any:
        """The element of a number, exactly."""
        if isinstance(number, (bool, int, np.integer, np.bool_)):
            return Ball(int(number))
        value = float(number)
        return Ball(value) if math.isfinite(value) and (value or math.copysign(1, value) > 0) else value

    def array(self, numbers: Any) -> Array:
        """The elements of an array of numbers."""
        whole = np.asarray(numbers)
        made = np.empty(whole.shape, dtype=object)
        made.reshape(-1)[:] = [self.from_number(number) for number in whole.reshape(-1).tolist()]
        return made

    def sign(self, x: Any) -> int | None:
        """-1, 0 or 1; None where it is not certain, or there is none."""
        if type(x) is Ball:
            return 1 if x > 0 else -1 if x < 0 else 0 if x == 0 else None
        if x is None or x != x:
            return None
        return int(x > 0) - int(x < 0)

    def order(self, x: Any, y: Any) -> int | None:
        """-1 where x is certainly less than y, 1 where it is greater, 0 where they are the same; NaN has no order."""
        if type(x) is Ball and type(y) is Ball:
            return -1 if x < y else 1 if x > y else 0 if x == y else None
        if x is None or y is None or self.is_undefined(x) or self.is_undefined(y):
            return None
        if self.is_infinite(x) or self.is_infinite(y):
            a, b = (value if self.is_infinite(value) else 0.0 for value in (x, y))
            return int(a > b) - int(a < b)
        # what is left beside balls is -0.0
        return self.order(*(self.zero if type(value) is float else value for value in (x, y)))

    def is_undefined(self, x: Any) -> bool:
        """Whether an element is certainly no number."""
        return type(x) is float and x != x

    def is_infinite(self, x: Any) -> bool:
        """Whether an element is certainly infinite."""
        return type(x) is float and math.isinf(x)

    def _special(self, x: Any) -> float | None:
        """A float with the sign of an element, and infinite, 0 or NaN where it is; None where that is uncertain."""
        if type(x) is float:
            return x
        sign = self.sign(x)
        return None if sign is None else float(sign)

    def _settled(self, value: float) -> Any:
        """The element of what a special case came to: 0 without a sign is a ball."""
        return self.zero if value == 0 and math.copysign(1, value) > 0 else value

    # -- two operands --------------------------------------------------------------------------------------------

    def add(self, x: Any, y: Any) -> Any:
        """The sum."""
        if type(x) is Ball and type(y) is Ball:
            return x + y
        if type(x) is int:
            return y
        if type(y) is int:
            return x
        if self.is_undefined(x) or self.is_undefined(y):
            return math.nan
        if x is None or y is None:
            return UNDECIDED
        if self.is_infinite(x) or self.is_infinite(y):
            return (x if self.is_infinite(x) else 0.0) + (y if self.is_infinite(y) else 0.0)
        # what is left beside balls is -0.0
        return y if type(x) is float else x

    def sub(self, x: Any, y: Any) -> Any:
        """The difference."""
        if type(x) is Ball and type(y) is Ball:
            return x - y
        return self.add(x, self.neg(y))

    def mul(self, x: Any, y: Any) -> Any:
        """The product."""
        if type(x) is Ball and type(y) is Ball:
            return x * y
        if type(x) is int or type(y) is int:
            return NOTHING
        if self.is_undefined(x) or self.is_undefined(y):
            return math.nan
        a, b = self._special(x), self._special(y)
        if a is None or b is None:
            # of a ball that may be 0: a signed zero makes 0 of it, an infinity anything
            certain = x is not None and y is not None and (a == 0 or b == 0)
            return self.zero if certain else UNDECIDED
        return self._settled(a * b)

    def div(self, x: Any, y: Any) -> Any:
        """The quotient; a finite number by 0 is infinite."""
        if type(x) is int:
            return NOTHING
        if type(x) is Ball and type(y) is Ball and self.sign(y):
            return finite(x / y)
        if self.is_undefined(x) or self.is_undefined(y):
            return math.nan
        a, b = self._special(x), self._special(y)
        if self.is_infinite(y) and x is not None:
            return math.nan if self.is_infinite(x) else self._settled(0.0 if a is None or b is None else a / b)
        if a is None or b is None:
            return UNDECIDED
        if b == 0:
            return math.nan if a == 0 else math.copysign(math.inf, a) * math.copysign(1.0, b)
        return self._settled(a / b)

    def pow(self, x: Any, y: Any) -> Any:
        """The power, as C's ``pow`` has it."""
        sign = self.sign(y)
        if sign == 0 or (type(x) is Ball and x == 1):
            return self.one
        if self.is_undefined(x) or self.is_undefined(y):
            return math.nan
        if x is None or y is None:
            return UNDECIDED
        if type(y) is float:
            return self._to_infinity(x, y)
        whole = exact_number(y)
        if type(x) is float:
            return UNDECIDED if sign is None else self._special_power(x, sign, whole)
        return self._ball_power(x, y, sign, whole)

    def _ball_power(self, x: Any, y: Any, sign: int | None, whole: float | None) -> Any:
        base = self.sign(x)
        if whole is not None and whole.is_integer() and abs(whole) <= 1024 and (base or whole > 0):
            powered = x ** int(abs(whole))
            return powered if whole > 0 else self.div(self.one, powered)
        if base == 1:
            return finite(x**y)
        if base == 0:
            return UNDECIDED if sign is None else self.zero if sign > 0 else math.inf
        if base == -1 and not y.contains_integer():
            return math.nan
        if base == -1 and whole is not None:
            size = finite((-x) ** y)
            return size if size is None or whole % 2 == 0 else -size
        return UNDECIDED

    def _special_power(self, x: float, sign: int, whole: float | None) -> Any:
        """An infinity or -0.0 to a finite power other than 0."""
        odd = whole is not None and whole % 2 == 1
        size = abs(x) if sign > 0 else (0.0 if math.isinf(x) else math.inf)
        return self._settled(math.copysign(size, x) if odd else size)

    def _to_infinity(self, x: Any, y: float) -> Any:
        above = self.order(self.abs(x), self.one)
        if above is None:
            return UNDECIDED
        if above == 0:
            return self.one
        return math.inf if (above > 0) == (y > 0) else self.zero

    def atan2(self, y: Any, x: Any) -> Any:
        """The angle of a point, with IEEE 754's signed zeros and infinities."""
        if type(x) is Ball and type(y) is Ball and (self.sign(x) or self.sign(y)):
            return finite(Ball.atan2(y, x))
        if self.is_undefined(x) or self.is_undefined(y):
            return math.nan
        b, a = self._special(y), self._special(x)
        if a is None or b is None:
            return UNDECIDED
        # one of them is 0 or infinite, and so the angle a multiple of an eighth of a turn
        angle = math.atan2(b, a)
        eighths = round(angle / (math.pi / 4))
        return self._settled(angle) if eighths == 0 else Ball.pi() * (eighths / 4)

    def hull(self, x: Any, y: Any) -> Any:
        """What encloses both of two possible values; undecided where they have no ball in common."""
        if type(x) is int:
            x = self.zero
        if type(y) is int:
            y = self.zero
        if type(x) is Ball and type(y) is Ball:
            return x.union(y)
        return x if x is y or (type(x) is float and x == y) else UNDECIDED

    # -- one operand ---------------------------------------------------------------------------------------------

    def neg(self, x: Any) -> Any:
        """The number with the other sign; of 0 that is -0.0."""
        if type(x) is Ball:
            return -0.0 if x == 0 else -x
        if x is None or type(x) is int:
            return x
        return self.zero if x == 0 else -x

    def abs(self, x: Any) -> Any:
        """The magnitude."""
        if type(x) is Ball:
            return abs(x)
        return x if x is None else self._settled(abs(x))

    def function(self, name: str) -> Callable[[Any], Any]:
        """A function of one element by its name in PyTorch, with its domain, poles and limits."""
        if name not in self._functions:
            self._functions[name] = self._with_edges(name)
        return self._functions[name]

    def _with_edges(self, name: str) -> Callable[[Any], Any]:
        edges = _EDGES.get(name, Edges())
        inside = FUNCTIONS[name]
        poles = _WHOLE_POLES.get(name)
        odd = name in (
            "sin",
            "tan",
            "sinh",
            "tanh",
            "asin",
            "asinh",
            "atanh",
            "erf",
            "erfinv",
            "expm1",
            "log1p",
            "sqrt",
        )

        def found(x: Any) -> Any:
            if type(x) is not Ball:
                if x is None or x != x:
                    return x
                if x == 0 and odd:
                    return x
                if x != 0:
                    return outside(x)
                x = self.zero
            if math.isfinite(edges.low) and not x > edges.low:
                return at(edges.at_low, x) if x == edges.low else math.nan if x < edges.low else UNDECIDED
            if math.isfinite(edges.high) and not x < edges.high:
                return at(edges.at_high, x) if x == edges.high else math.nan if x > edges.high else UNDECIDED
            if poles is not None and not x > 0:
                return at_whole(x)
            return inside(x)

        def at(value: float, x: Any) -> Any:
            return inside(x) if math.isfinite(value) else value

        def at_whole(x: Any) -> Any:
            below = floor(x)
            if below is None:
                return UNDECIDED
            if x == below:
                return -math.inf if name == "digamma" and below == 0 else poles
            return inside(x) if x > below else UNDECIDED

        def outside(x: float) -> Any:
            value, ends = (edges.at_high, edges.high) if x > 0 else (edges.at_low, edges.low)
            return math.nan if math.isfinite(ends) else self.from_number(value)

        return found

    def _inverse(self, x: Any) -> Any:
        return self.div(self.one, x)

    def _atan(self, x: Any) -> Any:
        if type(x) is not Ball:
            return x if x is None or x == 0 or x != x else self.atan2(math.copysign(1, x) * math.inf, self.one)
        return FUNCTIONS["atan"](x)
