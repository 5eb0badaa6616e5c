"""The links of a chain: what an event did to an element, and which of its operands to look at next."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from whynan.floats import FORMATS, smallest
from whynan.ops.table import TORCH
from whynan.records import Note, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_COMPUTED: Final[dict[str, Callable[[float, float], Any]]] = {
    "mul": operator.mul,
    "div": lambda first, second: first / second,
    "sub": operator.sub,
    "rsub": operator.sub,
    "add": operator.add,
    "pow": math.pow,
}
NEGLIGIBLE: Final = 1000
"""A side of a difference that is so many times smaller than the result explains nothing."""


class Dialect(NamedTuple):
    """Which of a framework's operators give a number again, limit it, or bring it to another scale."""

    transparent: frozenset[str]
    clips: frozenset[str]
    scales: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Part:
    """One operand of an element: its value, or the range of the row that was read, and where it is to be looked up."""

    value: Any = None
    row: tuple[float | None, float | None] | None = None
    holder: Any = None
    place: tuple[int, ...] | None = None

    @property
    def number(self) -> float | None:
        """The value where it is a number."""
        return self.value if isinstance(self.value, (int, float)) else None


def explain_event(
    dialect: Dialect, op: str, value: Any, parts: list[Part], dtype: str
) -> tuple[Note | None, Part | None]:
    """What an event did to an element, and the operand to look at next; neither where there is none."""
    first = next((p for p in parts if p.holder is not None), None)
    if op in dialect.transparent and first is not None and first.place is not None:
        return _cast(value, first, dtype), first
    if op in dialect.clips and first is not None and first.number is not None and first.value != value:
        return Note.create("turned_into", operator=op, operand=shown(first.value), result=shown(value)), None
    row = next((p for p in parts if p.row is not None), None)
    seen = any(p.value is not None for p in parts)
    if row is not None and row.row is not None and row.row[0] is not None and not seen:
        low, high = row.row
        if low == high:
            return Note.create("row_of", operator=op, operand=shown(low), result=shown(value)), row
        return Note.create("range_of", operator=op, low=shown(low), high=shown(high), result=shown(value)), None
    if not seen:
        return Note.create("gives", operator=op, result=shown(value)), None
    return _computed(dialect, op, value, parts, dtype), _followed(dialect, op, value, parts)


def _computed(dialect: Dialect, op: str, value: Any, parts: list[Part], dtype: str) -> Note:
    """What an operator makes of what it was given: arithmetic, where that is what it was."""
    seen = tuple(shown(p.value) for p in parts if p.value is not None)
    if op in dialect.scales and len(seen) > 1:
        return Note.create("scaled", operator=op, operands=seen[:3], result=shown(value))
    small = _underflows(op, value, parts, dtype)
    return Note.create(
        "computed",
        operator=op,
        operands=seen,
        result=shown(value),
        arithmetic=op.lower() in _COMPUTED and len(seen) == 2 and _holds(op, value, parts, dtype),
        dtype=dtype if small else None,
        smallest=smallest(dtype) if small else None,
    )


def _cast(value: Any, part: Part, dtype: str) -> Note | None:
    """What to say where a copy in another dtype has lost a number; None where it has not."""
    if value != 0 or part.number is None or part.number == 0:
        return None
    return Note.create("cast", operand=shown(part.value), dtype=dtype, result=shown(value), smallest=smallest(dtype))


def _followed(dialect: Dialect, op: str, value: Any, parts: list[Part]) -> Part | None:
    """The operand that made the value what it is; none where the event itself is the explanation."""
    if op in ("rand", "randn") or not isinstance(value, (int, float)):
        return None
    known = [(p, p.number) for p in parts if p.holder is not None and p.place is not None and p.number is not None]
    plain = op.lower()
    infinite = [part for part, number in known if math.isinf(number)]
    if len(infinite) == 1 and math.isfinite(value) and (len(known) == 1 or plain == "div"):
        # what is finite again of an infinity: the infinity is to be explained
        return infinite[0]
    if plain == "exp":
        return None
    if len(infinite) == 1 and math.isinf(value) and plain in ("add", "sub", "rsub", "mul"):
        return infinite[0]
    if plain in ("sub", "rsub"):
        # two sides of like size cancel, which explains the value
        known = [(p, n) for p, n in known if abs(float(n)) * NEGLIGIBLE > abs(value)] or known
        nothing_cancels = all(n == 0 for _, n in known)
        return known[0][0] if len(known) == 1 or (known and nothing_cancels) else None
    if op in dialect.scales:
        # the zero of what is quantised may be any number
        return known[0][0] if known else None
    if value == 0:
        return next((p for p, n in known if n == 0), None)
    if len(known) == 1:
        return known[0][0]
    if plain in ("mul", "add", "div") and known:
        # a tiny product comes from its smallest factor, anything else from its greatest part
        choose = min if plain == "mul" and abs(value) < 1 else max
        return choose(known, key=lambda pair: abs(float(pair[1])))[0]
    return None


def _underflows(op: str, value: Any, parts: list[Part], dtype: str) -> bool:
    """Whether nothing but zero was too small to be written."""
    seen = [p.number for p in parts if p.number is not None]
    if value != 0 or op.lower() not in TORCH.having("shrinking") or not seen or 0 in seen or any(map(math.isinf, seen)):
        return False
    # a quotient may have been rounded down
    return dtype in FORMATS and (op.lower() not in _COMPUTED or _holds(op, value, parts, dtype))


def _holds(op: str, value: Any, parts: list[Part], dtype: str) -> bool:
    """Whether a value is what the plain operator makes of two numbers, to the rounding of its dtype.

    Not with an ``alpha``, and not where a quotient was rounded.
    """
    seen = [p.number for p in parts if p.number is not None]
    if not isinstance(value, (int, float)) or len(seen) != 2:
        return False
    first, second = reversed(seen) if op == "rsub" else seen
    try:
        exact = _COMPUTED[op.lower()](float(first), float(second))
    except (ArithmeticError, ValueError):
        return True
    if isinstance(exact, complex) or exact - exact != 0 or value - value != 0:
        return True
    limits = FORMATS.get(dtype)
    return abs(exact - value) <= (0 if limits is None else abs(exact) * 2 * limits.eps + limits.smallest_subnormal)


# -- Which term of a sum of products made it what it is ----------------------------------------------------------------


class Addend(NamedTuple):
    """The decisive term of a sum of products: its place in the sum, both factors, and which of them to follow."""

    place: int
    factors: tuple[float, float]
    side: int

    def said(self, value: float) -> Note:
        """The term in a sentence."""
        x, y = self.factors
        return Note.create("product_term", first=x, second=y, result=shown(value), exact=x * y == value)


def decisive_term(
    first: NDArray[np.float64], second: NDArray[np.float64], value: float, computed: tuple[bool, bool]
) -> Addend | None:
    """The greatest term of a product of two rows; of a product that is 0, the term whose computed factor is 0.

    `computed`: whether each operand was computed in this run, and so has a cause of its own.
    """
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        return None
    with np.errstate(all="ignore"):
        if value == 0:
            # a 0 that was computed beside the greatest partner says most
            weight = np.stack([np.where(a == 0, np.abs(b) + 1, -1) for a, b in ((first, second), (second, first))])
            for side in (0, 1):
                if not computed[side] and computed[1 - side]:
                    weight[side] = np.where(weight[side] > 0, 0, -1)
            place = int(weight.argmax())
            if weight.reshape(-1)[place] < 0:
                return None
            side, k = divmod(place, first.size)
            return Addend(k, (float(first[k]), float(second[k])), side)
        k = int(np.argmax(np.nan_to_num(np.abs(first * second), nan=np.inf, posinf=np.inf)))
    x, y = float(first[k]), float(second[k])
    return Addend(k, (x, y), int((abs(x) < abs(y)) if abs(value) >= 1 else (abs(x) > abs(y))))
