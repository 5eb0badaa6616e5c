"""The sentences of a chain: what an event did to an element, and which of its operands to look at next."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whynan.capture.torch.operands import dtype_name
from whynan.floats import format_of, format_value
from whynan.records import Note, shown

if TYPE_CHECKING:
    import torch

    from whynan.capture.torch.rows import Held, Row

TRANSPARENT = frozenset("clone _to_copy contiguous copy_ copy expand view reshape _unsafe_view cat stack index".split())
CLIPS = frozenset(
    "relu relu_ clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ hardtanh relu6 threshold maximum minimum "
    "leaky_relu hardsigmoid masked_fill masked_fill_ where nan_to_num native_dropout".split()
)
CONSTANTS = frozenset(
    "lift_fresh full full_like zeros zeros_like ones ones_like scalar_tensor fill zero new_full new_zeros new_ones eye "
    "arange linspace".split()
)
RANDOM = frozenset(
    "rand randn randint rand_like randn_like randperm uniform normal bernoulli exponential geometric log_normal cauchy "
    "multinomial".split()
)

_SHRINKING = frozenset("mul pow square exp div sigmoid".split())
_COMPUTED: dict[str, Callable[[float, float], Any]] = {
    "mul": operator.mul,
    "div": operator.truediv,
    "sub": operator.sub,
    "rsub": operator.sub,
    "add": operator.add,
    "pow": operator.pow,
}
NEGLIGIBLE = 1000
"""A side of a difference that is so many times smaller than the result explains nothing."""

# name, value or range, operand, and where in it
Part = tuple[str, Any, "Held | None", "tuple[int, ...] | None"]


def made(row: Row, value: Any) -> Note:
    """What an event did to an element whose operands are gone."""
    plain = row.operator.base.removesuffix("_")
    if value is None:
        return Note.of("wrote_last", operator=plain)
    if plain in CONSTANTS:
        return Note.of("program_writes", result=shown(value))
    return Note.of("drew" if plain in RANDOM else "made", operator=plain, result=shown(value))


def computed(plain: str, value: Any, parts: list[Part], dtype: torch.dtype) -> Note:
    """What an operator makes of what it was given: arithmetic, where that is what it was."""
    seen = tuple(shown(v) for _, v, _, _ in parts if v is not None and not isinstance(v, tuple))
    plainly = plain in _COMPUTED and len(seen) == 2 and _holds(plain, value, parts, dtype)
    small = underflows(plain, value, parts, dtype)
    return Note.of(
        "computed",
        operator=plain,
        operands=seen,
        result=shown(value),
        arithmetic=plainly,
        dtype=dtype_name(dtype) if small else None,
        smallest=_least(dtype) if small else None,
    )


def cast(value: Any, part: Part, dtype: torch.dtype) -> Note | None:
    """What to say where a copy in another dtype has lost a number; None where it has not."""
    given = part[1]
    if value != 0 or not isinstance(given, (int, float)) or given == 0:
        return None
    return Note.of("cast", operand=shown(given), dtype=dtype_name(dtype), result=shown(value), smallest=_least(dtype))


def to_follow(plain: str, value: Any, parts: list[Part]) -> tuple[Held | None, tuple[int, ...] | None]:
    """The operand that made the value what it is; none where the event itself is the explanation."""
    if plain in ("rand", "randn") or not isinstance(value, (int, float)):
        return None, None
    tensors = [(h, w, v) for _, v, h, w in parts if h is not None and w is not None and isinstance(v, (int, float))]
    if len(tensors) == 1 and math.isinf(tensors[0][2]) and math.isfinite(value):
        # what is finite again of an infinity: the infinity is to be explained
        return tensors[0][0], tensors[0][1]
    if plain == "exp":
        return None, None
    if plain in ("sub", "rsub"):
        # two sides of like size cancel, which explains the value
        tensors = [t for t in tensors if abs(float(t[2])) * NEGLIGIBLE > abs(value)] or tensors
        return (tensors[0][0], tensors[0][1]) if len(tensors) == 1 else (None, None)
    if value == 0:
        for h, w, v in tensors:
            if v == 0:
                return h, w
        return None, None
    if len(tensors) == 1:
        return tensors[0][0], tensors[0][1]
    if plain in ("mul", "add", "div") and tensors:
        # a tiny product comes from its smallest factor, anything else from its greatest part
        choose = min if plain == "mul" and abs(value) < 1 else max
        h, w, _ = choose(tensors, key=lambda t: abs(float(t[2])))
        return h, w
    return None, None


def underflows(plain: str, value: Any, parts: list[Part], dtype: torch.dtype) -> bool:
    """Whether nothing but zero was too small to be written."""
    seen = [v for _, v, _, _ in parts if isinstance(v, (int, float))]
    if value != 0 or plain not in _SHRINKING or not seen or 0 in seen or any(abs(v) == float("inf") for v in seen):
        return False
    if plain in _COMPUTED and not _holds(plain, value, parts, dtype):
        # a quotient that was rounded down
        return False
    return dtype.is_floating_point


def _least(dtype: torch.dtype) -> float | None:
    """The smallest number of a dtype."""
    return format_of(dtype_name(dtype)).smallest_subnormal if dtype.is_floating_point else None


def _holds(plain: str, value: Any, parts: list[Part], dtype: torch.dtype) -> bool:
    """Whether a value is what the plain operator makes of two numbers, to the rounding of its dtype.

    Not with an ``alpha``, and not where a quotient was rounded.
    """
    seen = [v for _, v, _, _ in parts if isinstance(v, (int, float))]
    if not isinstance(value, (int, float)) or len(seen) != 2:
        return False
    first, second = reversed(seen) if plain == "rsub" else seen
    try:
        exact = _COMPUTED[plain](float(first), float(second))
    except (ArithmeticError, ValueError):
        return True
    if isinstance(exact, complex) or exact - exact != 0 or value - value != 0:
        return True
    limits = format_of(dtype_name(dtype)) if dtype.is_floating_point else None
    off = abs(exact) * 2 * limits.eps + limits.smallest_subnormal if limits is not None else 0.0
    return abs(exact - value) <= off


def text(value: Any) -> str:
    """A value in few characters: 1e-20, 0.785, Inf, NaN; never so few that it looks whole where it is not."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    return format_value(value, digits=4)
