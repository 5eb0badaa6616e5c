"""The angle of a point, as torch's exporters write ``atan2`` in operators that ONNX has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from whynan.fixes.graph.values import number_of, same, seen_through

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Arctangent:
    """The operands of an ``atan2`` and the nodes that make it up."""

    y: ir.Value
    x: ir.Value
    nodes: tuple[ir.Node, ...]


def arctangent(value: ir.Value) -> Arctangent | None:
    """A value as the ``atan2`` that it is by its nodes: the quotient's arc tangent, turned by pi where x < 0.

    The TorchScript exporter ends there; the default one puts 0 where that is NaN.
    """
    root = seen_through(value).producer()
    if root is None:
        return None
    covered = _nan_covered(root)
    if covered is not None:
        inner = arctangent(covered[0])
        return None if inner is None else Arctangent(inner.y, inner.x, (*covered[1], *inner.nodes))
    return _turned(root)


def _nan_covered(root: ir.Node) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
    """``where(isnan(a), 0, a)``: a, and the nodes."""
    operands = _operands(root, "Where", 3)
    if operands is None:
        return None
    asked = _operands(operands[0].producer(), "IsNaN", 1)
    asker = operands[0].producer()
    if asked is None or asker is None or number_of(operands[1]) != 0 or not same(asked[0], operands[2]):
        return None
    return operands[2], (root, asker)


def _turned(root: ir.Node) -> Arctangent | None:
    """``where(x < 0, where(y > 0, a + pi, a - pi), a)`` with ``a = atan(y / x)``."""
    outer = _operands(root, "Where", 3)
    if outer is None:
        return None
    arc = outer[2].producer()
    inside = _operands(arc, "Atan", 1)
    quotient = None if inside is None else inside[0].producer()
    parts = _operands(quotient, "Div", 2)
    within = _operands(outer[1].producer(), "Where", 3)
    if arc is None or quotient is None or parts is None or within is None:
        return None
    y, x = parts
    up, down = within[1].producer(), within[2].producer()
    signs = _is_sign(outer[0], "Less", x) and _is_sign(within[0], "Greater", y)
    if not signs or not (_is_turn(up, "Add", outer[2]) and _is_turn(down, "Sub", outer[2])):
        return None
    made = (root, outer[0].producer(), outer[1].producer(), within[0].producer(), up, down, arc, quotient)
    return Arctangent(y, x, tuple(node for node in made if node is not None))


def _is_sign(value: ir.Value, op: str, of: ir.Value) -> bool:
    operands = _operands(value.producer(), op, 2)
    return operands is not None and same(operands[0], of) and number_of(operands[1]) == 0


def _is_turn(node: ir.Node | None, op: str, of: ir.Value) -> bool:
    operands = _operands(node, op, 2)
    if operands is None or not same(operands[0], of):
        return False
    by = number_of(operands[1])
    return by is not None and bool(np.isclose(by, np.pi, rtol=1e-2))


def _operands(node: ir.Node | None, op: str, count: int) -> Sequence[ir.Value] | None:
    """What a node of this type reads, copies seen through; None for another node."""
    if node is None or node.op_type != op or len(node.inputs) != count:
        return None
    found = [seen_through(value) for value in node.inputs if value is not None]
    return found if len(found) == count else None
