"""The words of a rule's sentence: operators and operands by readable names, with their values."""

# pyright: strict

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from whynan.floats import format_value
from whynan.ops.onnx import op_type
from whynan.rules.facts import base, forward_base, forward_operand, is_onnx, operand

if TYPE_CHECKING:
    from whynan.records import Finding, Operand

_DECORATION = re.compile(r"^(native_|linalg_|special_)|(_forward|_interface|_ex)$")
_PRODUCTS = frozenset("mm bmm addmm baddbmm mv addmv matmul linear".split())
_NAMES: Final = {"self": "the input", "other": "the second operand", "input": "the input", "weight": "the weight"}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)


def readable(name: str) -> str:
    """``linalg_vector_norm`` is ``vector_norm``, ``nll_loss_forward`` ``nll_loss``, ``mm`` ``a matrix product``."""
    if name in _PRODUCTS:
        return "a matrix product"
    if name in ("_to_copy", "copy", "copy_"):
        return "a cast"
    text = name.strip("_")
    while (shorter := _DECORATION.sub("", text)) != text:
        text = shorter
    return text


def spelled(finding: Finding, name: str) -> str | None:
    """How the source writes an operand; None where that is not known, or where it is written as a number.

    A node of an ONNX model calls it by the name of its schema.
    """
    found = operand(finding, name)
    if found is not None and is_onnx(finding):
        return _NAMES.get(found.name, found.name)
    return _variable(found.expression if found is not None else None)


def spelled_forward(finding: Finding, name: str) -> str | None:
    """How the source writes an operand of the forward operation."""
    found = forward_operand(finding, name)
    return _variable(found.expression if found is not None else None)


def _variable(text: str | None) -> str | None:
    return None if text is None or _NUMBER.fullmatch(text) else text


def here(text: str | None, what: str) -> str:
    """``: x is 0 here``; empty where the source does not name it."""
    return f": {text} is {what} here" if text else ""


def second_order(finding: Finding) -> bool:
    """Whether the operation that is differentiated was one of a backward itself, whose operands are not held."""
    return bool(forward_base(finding)) and not finding.forward_operands


def derivative(finding: Finding) -> str:
    """`` in the derivative of hypot at x = 0, y = 0``; empty outside of the backward."""
    if not forward_base(finding):
        return ""
    if second_order(finding):
        return f" in the second derivative, of a {readable(forward_base(finding))} that the first one computes"
    known = [o for o in finding.forward_operands if o.dtype is not None and o.index is not None and o.value is not None]
    added = forward_base(finding) in ("addmm", "baddbmm", "addmv", "addbmm")
    names = {**_NAMES, "self": "the bias"} if added else _NAMES
    values = ", ".join(f"{o.expression or names.get(o.name, o.name)} = {format_value(o.value)}" for o in known)
    return f" in the derivative of {readable(forward_base(finding))}" + (f" at {values}" if values else "")


def row_text(found: Operand) -> str:
    """``x (from -1 to 3)``, ``x (all 3)``, ``x = 3``; only the name where no value is known."""
    name = found.expression or _NAMES.get(found.name, found.name)
    if found.min is not None and found.max is not None and found.min == found.min and found.value != found.value:
        return f"{name} (from {format_value(found.min)} to {format_value(found.max)}, and NaN)"
    if found.min is not None and found.max is not None:
        low, high = format_value(found.min), format_value(found.max)
        return f"{name} (all {low})" if found.min == found.max else f"{name} (from {low} to {high})"
    if found.value is None or _variable(name) is None:
        return name
    return f"{name} = {format_value(found.value)}"


def given(finding: Finding) -> str:
    """The tensors that went in, with their values: ``x (from 1 to 3) and y = 2``; settings and indices are left out."""
    known = [o for o in finding.element.operands if o.value is not None or o.min is not None]
    counted = [o for o in known if (o.dtype or "").startswith(("float", "bfloat", "complex"))]
    counted += [o for o in known if o.dtype is None and isinstance(o.value, float)]
    parts = [row_text(o) for o in counted]
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def doing(finding: Finding) -> str:
    """The operator in words; that of an ONNX model by its type."""
    return op_type(finding.op or "") if is_onnx(finding) else readable(base(finding))
