"""Reading a finding: base operator, operand values, limits."""

# pyright: strict

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from whynan.floats import describe_limit, format_value
from whynan.ops.onnx import meaning

if TYPE_CHECKING:
    from whynan.records import Finding, ForwardOperand, Operand

INF = math.inf


def base(finding: Finding) -> str:
    """``aten.div_.Tensor`` -> ``div``; of a foreach operator what it does to each tensor; empty for ``entered``.

    Of a node of an ONNX model the operator of ATen that does the same: ``Div`` -> ``div``.
    """
    return meaning(finding.op).base if finding.op is not None and is_onnx(finding) else _bare(finding.op)


def is_onnx(finding: Finding) -> bool:
    """Whether it was born in a node of an ONNX model."""
    return finding.phase == "inference"


def forward_base(finding: Finding) -> str:
    """The base name of the forward operation of a backward birth; empty for every other."""
    return _bare(finding.forward_op) if finding.phase == "backward" else ""


def _bare(op: str | None) -> str:
    if op is None:
        return ""
    name = op.split(".")[1] if "." in op else op
    name = name.removeprefix("_foreach_")
    return name if name.startswith("_") else name.removesuffix("_")


def operand(finding: Finding, *names: str) -> Operand | None:
    """The first operand of one of these schema names, which are ATen's for a node of an ONNX model too."""
    known = meaning(finding.op) if finding.op is not None and is_onnx(finding) else None
    for name in names:
        for found in finding.element.operands:
            if (found.name if known is None else known.theirs(found.name)) == name:
                return found
    return None


def forward_operand(finding: Finding, name: str) -> ForwardOperand | None:
    """An operand of the forward operation of a backward birth."""
    return next((o for o in finding.forward_operands if o.name == name), None)


def value(finding: Finding, *names: str) -> float | None:
    """The numeric value of an operand; None where it is gone or no real number."""
    return _real(operand(finding, *names))


def forward_value(finding: Finding, name: str) -> float | None:
    """The value of a forward operand of a backward birth."""
    return _real(forward_operand(finding, name))


def _real(found: Operand | ForwardOperand | None) -> float | None:
    if found is None or not isinstance(found.value, (int, float)) or isinstance(found.value, bool):
        return None
    return float(found.value)


def is_zero(finding: Finding, name: str) -> bool:
    """Whether an operand is 0, a complex one included."""
    return _zero(operand(finding, name))


def forward_is_zero(finding: Finding, name: str) -> bool:
    """Whether a forward operand is 0, a complex one included."""
    return _zero(forward_operand(finding, name))


def _zero(found: Operand | ForwardOperand | None) -> bool:
    if found is None or found.value is None:
        return False
    return (complex(found.value) if isinstance(found.value, str) else found.value) == 0


def row(finding: Finding, *names: str) -> tuple[float, float] | None:
    """Least and greatest of the row that a reduction ran over; a single value is its own row."""
    found = operand(finding, *names)
    if found is not None and found.min is not None and found.max is not None:
        return float(found.min), float(found.max)
    known = value(finding, *names)
    return None if known is None else (known, known)


def all_finite(finding: Finding) -> bool:
    """Whether every operand value that is known is finite, and at least one is known."""
    known = [v for o in finding.element.operands for v in (o.value, o.min, o.max)]
    numbers = [float(v) for v in known if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return bool(numbers) and all(math.isfinite(v) for v in numbers)


def infinite(finding: Finding) -> bool:
    """Whether a value of an operand, or an end of its row, is Inf or -Inf."""
    return any(v in (INF, -INF) for o in finding.element.operands for v in (o.value, o.min, o.max))


def empty(finding: Finding) -> bool:
    """Whether an operand has no elements at all."""
    return any(o.shape is not None and 0 in o.shape for o in finding.element.operands)


def count_of(finding: Finding, *names: str) -> int | None:
    """How many elements of an operand went into each element of the result."""
    found = operand(finding, *names)
    if found is None or found.shape is None or not finding.element.total:
        return None
    return math.prod(found.shape) // finding.element.total


def in_known_step(finding: Finding) -> bool:
    """Whether it is born in the step of an optimizer that is not the program's own: its site is the call of that."""
    return finding.phase == "optimizer" and (finding.site is None or ".step(" in (finding.site.code or ".step("))


def is_nan(finding: Finding) -> bool:
    """Whether the offending element is NaN."""
    found = finding.element.value
    return found is None or math.isnan(found)


def limit(finding: Finding) -> str:
    """``the float16 maximum 65504``."""
    return f"the {finding.element.dtype} maximum {describe_limit(finding.element.dtype)}"


def said(number: float | None) -> str:
    """A value as text."""
    return format_value(number)


def result(finding: Finding) -> str:
    """The offending value as text."""
    return "NaN" if is_nan(finding) else said(finding.element.value)
