"""The sentences of a chain: what an event did to an element, and which of its operands to look at next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.capture.torch.operands import dtype_name
from whynan.floats import format_of, format_value

if TYPE_CHECKING:
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

_SHRINKING = frozenset("mul pow square exp div sigmoid _softmax _to_copy prod".split())
NEGLIGIBLE = 1000
"""A side of a difference that is so many times smaller than the result explains nothing."""

# name, value or range, operand, and where in it
Part = tuple[str, Any, "Held | None", "tuple[int, ...] | None"]


def made(row: Row, value: Any) -> str:
    """What an event did to an element whose operands are gone."""
    plain = row.operator.base.removesuffix("_")
    if value is None:
        return f"{plain} wrote it last"
    if plain in CONSTANTS:
        return f"the program writes {text(value)}"
    return f"{plain} drew {text(value)}" if plain in RANDOM else f"{plain} made it {text(value)}"


def phrase(operator: str, seen: list[str]) -> str:
    if operator == "mul" and len(seen) == 2:
        return f"{seen[0]} times {seen[1]}"
    if operator == "div" and len(seen) == 2:
        return f"{seen[0]} divided by {seen[1]}"
    if operator == "sub" and len(seen) == 2:
        return f"{seen[0]} minus {seen[1]}"
    if operator == "rsub" and len(seen) == 2:
        return f"{seen[1]} minus {seen[0]}"
    if operator == "add" and len(seen) == 2:
        return f"{seen[0]} plus {seen[1]}"
    if operator == "pow" and len(seen) == 2:
        return f"{seen[0]} to the power {seen[1]}"
    return f"{operator} of {', '.join(seen)}"


def to_follow(operator: str, value: Any, parts: list[Part]) -> tuple[Held | None, tuple[int, ...] | None]:
    """The operand that made the value what it is; none where the event itself is the explanation."""
    if operator in ("exp", "rand", "randn") or not isinstance(value, (int, float)):
        return None, None
    tensors = [(h, w, v) for _, v, h, w in parts if h is not None and w is not None and isinstance(v, (int, float))]
    if operator in ("sub", "rsub"):
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
    if operator in ("mul", "add", "div") and tensors:
        # a tiny product comes from its smallest factor, anything else from its greatest part
        choose = min if operator == "mul" and abs(value) < 1 else max
        h, w, _ = choose(tensors, key=lambda t: abs(float(t[2])))
        return h, w
    return None, None


def underflow(operator: str, value: Any, parts: list[Part]) -> str:
    """What to add where nothing but zero was too small to be written: the least number of the dtype."""
    seen = [v for _, v, _, _ in parts if isinstance(v, (int, float))]
    held = next((h for _, _, h, _ in parts if h is not None), None)
    if value != 0 or operator not in _SHRINKING or not seen or 0 in seen or held is None:
        return ""
    if not held.alias.is_floating_point() or any(abs(v) == float("inf") for v in seen):
        return ""
    dtype = dtype_name(held.alias.dtype)
    return f" in {dtype}, whose smallest number is {format_value(format_of(dtype).smallest_subnormal)}"


def text(value: Any) -> str:
    """A value in few characters: 1e-20, 0.785, Inf, NaN; never so few that it looks whole where it is not."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    return format_value(value, digits=4)
