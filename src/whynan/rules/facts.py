"""Reading a finding: base operator, operand values, limits, and values as text."""

# pyright: strict

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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
    except KeyError:
        return format_of("float32").max


def said(number: float | None) -> str:
    """A value as text."""
    return format_value(number)
