"""Roles of operands: which of them a birth turns on, by what the operator means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.capture.onnx.provenance.operands import locate
from whynan.capture.provenance.dependence import magnitude_of, operand_by_role
from whynan.floats import FORMATS
from whynan.ops.table import ONNX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Value
    from whynan.capture.onnx.provenance.operands import Index
    from whynan.records import BirthKind, Operand


_NORMALISED: Final = ("X", "input", "skip")
"""The operands that a norm brings to a variance of 1."""


def decisive_operand(
    node: Node, inputs: Sequence[Value], index: Index, kind: BirthKind, operands: tuple[Operand, ...]
) -> Operand | None:
    """The operand that a birth turns on: the denominator, the radicand, the greatest factor.

    Of an operator that is not known it is a zero, else the greatest in magnitude.
    """
    known = [o for o in operands if o.dtype is not None and isinstance(o.value, (int, float))]
    if node.op not in ONNX.having("quantised"):
        # an axis or a class is none, and has a part only where there is nothing else
        known = [o for o in known if o.dtype in FORMATS] or known
    if not known:
        return None
    if node.op in ONNX.having("norm", "row-norm"):
        return _of_norm(known)
    if node.op in ONNX.having("product", "convolution"):
        roles, sides = ("product", *(o.name for o in known)), _sides(node, inputs, index)
    else:
        roles, sides = ONNX.roles.get(node.op), None
    found = operand_by_role(roles, kind, operands, known, sides)
    if found is not None and found.dtype is not None:
        return found
    if node.op in ONNX.having("leading", "reduction", "row", "pool", "global-pool"):
        return known[0]
    if node.op not in ONNX.having("greatest"):
        zeros = [o for o in known if o.value == 0]
        if zeros:
            return zeros[-1]
    return max(known, key=magnitude_of)


def _of_norm(known: list[Operand]) -> Operand:
    """What is normalised, unless a parameter is so great that what has been normalised overflows with it."""
    rows = [o for o in known if o.name in _NORMALISED] or known[:1]
    greatest = math.sqrt(max(1, math.prod(rows[0].shape or ())))
    equal = all(o.min is not None and o.min == o.max for o in rows)
    for o in () if equal else known:
        if o not in rows and o.dtype in FORMATS and magnitude_of(o) * greatest > FORMATS[o.dtype].max / 2:
            return o
    return max(rows, key=magnitude_of)


def _sides(node: Node, inputs: Sequence[Value], index: Index) -> tuple[float, float] | None:
    """The sizes of the factors of the greatest product; None where part of a window lies outside."""
    if any(value is None for value in inputs[:2]):
        return None
    rows = [locate(node, inputs, i, index)[1] for i in (0, 1)]
    a, b = (None if row is None else np.abs(row.astype(np.float64)).reshape(-1) for row in rows)
    if a is None or b is None or not a.size or a.shape != b.shape:
        return None
    with np.errstate(all="ignore"):
        greatest = int(np.argmax(np.nan_to_num(a * b, nan=np.inf, posinf=np.inf)))
    return float(a[greatest]), float(b[greatest])
