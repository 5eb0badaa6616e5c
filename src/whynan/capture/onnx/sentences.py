"""The sentences of a chain: what a node did to an element, and which of its operands to look at next."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from whynan.errors import UsageError
from whynan.floats import format_of, format_value
from whynan.ops.onnx import SCALES

if TYPE_CHECKING:
    from whynan.capture.onnx.operands import Index

CLIPS: Final = frozenset("Relu Clip Max Min Where LeakyRelu HardSigmoid ThresholdedRelu Shrink Abs".split())
_SHRINKING: Final = frozenset("Mul Pow Exp Div Sigmoid".split())
_ARITHMETIC: Final = {
    "Mul": "{} times {}",
    "Div": "{} divided by {}",
    "Sub": "{} minus {}",
    "Add": "{} plus {}",
    "Pow": "{} to the power {}",
}
NEGLIGIBLE: Final = 1000
"""A side of a difference that is so many times smaller than the result explains nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """One operand of an element: its value, or the range of the row that was read, and where it is to be looked up."""

    name: str
    value: Any = None
    row: tuple[float, float] | None = None
    place: Index | None = None


def text(value: Any) -> str:
    """A value in few characters: 1e-20, 0.785, Inf, NaN."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    return format_value(value, digits=4)


def phrase(op: str, parts: list[Part]) -> str:
    """What an operator makes of what it was given: arithmetic as one says it, where that is what it was."""
    shown = [text(p.value) for p in parts if p.value is not None]
    words = _ARITHMETIC.get(op)
    if words is not None and len(shown) == 2:
        return words.format(*shown)
    if op in SCALES and len(shown) > 1:
        point = f" and zero point {shown[2]}" if len(shown) > 2 else ""
        return f"{op} of {shown[0]} with scale {shown[1]}{point}"
    return f"{op} of {', '.join(shown)}"


def underflow(op: str, value: Any, parts: list[Part], dtype: str) -> str:
    """What to add where nothing but zero was too small to be written: the least number of the dtype."""
    seen = [p.value for p in parts if isinstance(p.value, (int, float))]
    if value != 0 or op not in _SHRINKING or not seen or 0 in seen or any(abs(v) == float("inf") for v in seen):
        return ""
    return f" in {dtype}{least(dtype)}"


def least(dtype: str) -> str:
    """``, whose smallest number is 1.4e-45``."""
    try:
        return f", whose smallest number is {format_value(format_of(dtype).smallest_subnormal)}"
    except UsageError:
        return ""


def to_follow(op: str, value: Any, parts: list[Part]) -> Part | None:
    """The operand that made the value what it is; none where the node itself is the explanation."""
    if op == "Exp" or not isinstance(value, (int, float)):
        return None
    known = [p for p in parts if p.place is not None and isinstance(p.value, (int, float))]
    if op == "Sub":
        # two sides of like size cancel, which explains the value
        known = [p for p in known if abs(float(p.value)) * NEGLIGIBLE > abs(value)] or known
        return known[0] if len(known) == 1 else None
    if op in SCALES:
        # the zero of what is quantised may be any number
        return known[0] if known else None
    if value == 0:
        return next((p for p in known if p.value == 0), None)
    if len(known) == 1:
        return known[0]
    if op in ("Mul", "Add", "Div") and known:
        # a tiny product comes from its smallest factor, anything else from its greatest part
        choose = min if op == "Mul" and abs(value) < 1 else max
        return choose(known, key=lambda p: abs(float(p.value)))
    return None
