"""Reading a finding: base operator, operand values, limits, and values as text."""

# pyright: strict

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from whynan.errors import UsageError
from whynan.floats import describe_limit, format_of, format_value

if TYPE_CHECKING:
    from whynan.records import Finding, Operand


def base(finding: Finding) -> str:
    """``aten.div_.Tensor`` -> ``div``; of a foreach operator what it does to each tensor; empty for ``entered``."""
    if finding.op is None:
        return ""
    name = finding.op.split(".")[1] if "." in finding.op else finding.op
    name = name.removeprefix("_foreach_")
    return name if name.startswith("_") else name.removesuffix("_")


def forward_base(finding: Finding) -> str:
    """The base name of the forward operation of a backward birth."""
    if finding.forward_op is None:
        return ""
    return finding.forward_op.split(".")[1].removesuffix("_")


def operand(finding: Finding, *names: str) -> Operand | None:
    """The first operand of one of these schema names."""
    for name in names:
        for found in finding.element.operands:
            if found.name == name:
                return found
    return None


def value(finding: Finding, *names: str) -> float | None:
    """The numeric value of an operand; None where it is gone or no number."""
    found = operand(finding, *names)
    if found is None or not isinstance(found.value, (int, float)) or isinstance(found.value, bool):
        return None
    return float(found.value)


def forward_value(finding: Finding, name: str) -> float | None:
    """The value of a forward operand of a backward birth."""
    for found in finding.forward_operands:
        if found.name == name and isinstance(found.value, (int, float)) and not isinstance(found.value, bool):
            return float(found.value)
    return None


def is_zero(finding: Finding, name: str) -> bool:
    """Whether an operand is 0, a complex one included."""
    found = operand(finding, name)
    if found is None:
        return False
    if isinstance(found.value, str):
        return not any(c in "123456789" for c in found.value) and "0" in found.value
    return found.value == 0


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


def given(finding: Finding) -> str:
    """The operands with their values: ``x = 300, w from -1 to 2``; empty where none is known."""
    parts: list[str] = []
    for found in finding.element.operands:
        name = found.expression or found.name
        if found.min is not None and found.max is not None:
            low, high = said(found.min), said(found.max)
            parts.append(f"{name} all {low}" if found.min == found.max else f"{name} from {low} to {high}")
        elif found.value is not None and found.value != name:
            parts.append(f"{name} = {format_value(found.value)}")
    return ", ".join(parts)


def count_of(finding: Finding, *names: str) -> int | None:
    """How many elements of an operand went into each element of the result."""
    found = operand(finding, *names)
    if found is None or found.shape is None or not finding.element.total:
        return None
    return math.prod(found.shape) // finding.element.total


def spelled(finding: Finding, name: str) -> str:
    """How the source writes an operand, else its schema name."""
    for found in (*finding.element.operands, *finding.forward_operands):
        if found.name == name and found.expression:
            return found.expression
    return "the operand" if name == "self" else name


def is_nan(finding: Finding) -> bool:
    """Whether the offending element is NaN."""
    found = finding.element.value
    return found is None or math.isnan(found)


def limit(finding: Finding) -> str:
    """``the float16 maximum 65504``."""
    return f"the {finding.element.dtype} maximum {describe_limit(finding.element.dtype)}"


def largest(dtype: str) -> float:
    """The maximum of a dtype; of float32 where the name is not known."""
    try:
        return format_of(dtype).max
    except UsageError:
        return format_of("float32").max


def said(number: float | None) -> str:
    """A value as text."""
    return format_value(number)
