"""The sentences of a chain: what a node did to an element, and which of its operands to look at next."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from whynan.errors import UsageError
from whynan.floats import format_of
from whynan.ops.onnx import SCALES
from whynan.records import Note, shown

if TYPE_CHECKING:
    from whynan.capture.onnx.operands import Index

CLIPS: Final = frozenset("Relu Clip Max Min Where LeakyRelu HardSigmoid ThresholdedRelu Shrink Abs".split())
_SHRINKING: Final = frozenset("Mul Pow Exp Div Sigmoid".split())
_ARITHMETIC: Final = frozenset("Mul Div Sub Add Pow".split())
NEGLIGIBLE: Final = 1000
"""A side of a difference that is so many times smaller than the result explains nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """One operand of an element: its value, or the range of the row that was read, and where it is to be looked up."""

    name: str
    value: Any = None
    row: tuple[float, float] | None = None
    place: Index | None = None


def computed(op: str, value: Any, parts: list[Part], dtype: str) -> Note:
    """What an operator makes of what it was given: arithmetic, where that is what it was."""
    seen = tuple(shown(p.value) for p in parts if p.value is not None)
    if op in SCALES and len(seen) > 1:
        return Note.of("scaled", operator=op, operands=seen[:3], result=shown(value))
    small = underflows(op, value, parts)
    return Note.of(
        "computed",
        operator=op,
        operands=seen,
        result=shown(value),
        arithmetic=op in _ARITHMETIC and len(seen) == 2,
        dtype=dtype if small else None,
        smallest=least(dtype) if small else None,
    )


def underflows(op: str, value: Any, parts: list[Part]) -> bool:
    """Whether nothing but zero was too small to be written."""
    seen = [p.value for p in parts if isinstance(p.value, (int, float))]
    is_small = value == 0 and op in _SHRINKING and bool(seen) and 0 not in seen
    return is_small and not any(abs(v) == float("inf") for v in seen)


def least(dtype: str) -> float | None:
    """The smallest number of a dtype; None where it has none."""
    try:
        return format_of(dtype).smallest_subnormal
    except UsageError:
        return None


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
