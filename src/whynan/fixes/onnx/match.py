"""Matching: whether a value of a graph is what a pattern says, and what its variables stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx_ir as ir

from whynan.fixes.onnx.term import (
    AXES_ARE_AN_INPUT,
    AXES_OTHERWISE,
    BINARY,
    COMMUTATIVE,
    MARK,
    MOVES,
    NORMALISED,
    ONE_AXIS,
    REDUCTIONS,
    UNARY,
    Call,
    Expression,
    Number,
    Variable,
    axes_of,
    number_of,
    same,
    seen_through,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# -- The angle of a point, as torch's exporters write ``atan2`` in operators that ONNX has -----------------------------


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


# -- Whether a value of a graph is what a pattern says, and what its variables stand for -------------------------------


_DEEPEST: Final = 24
"""Nodes of one expression."""
Bound = ir.Value | tuple[int, ...] | int | float | bool | None
"""What a variable stands for: a value of the graph, axes, a number, a truth value, or what is missing."""


@dataclass(frozen=True, slots=True)
class Match:
    """A pattern that was found: what its variables are, which nodes make it up, and what was moved on the way.

    ``moved`` are the nodes between the operation at the root and its operand that only move elements, the first to
    run first.
    """

    bound: Mapping[str, Bound] = field(default_factory=dict[str, Bound])
    nodes: tuple[ir.Node, ...] = ()
    moved: tuple[ir.Node, ...] = ()

    def binds(self, name: str, what: Bound) -> Match | None:
        """The match with one more variable; None where it stands for something else already."""
        if name in self.bound:
            known = self.bound[name]
            if isinstance(known, ir.Value) and isinstance(what, ir.Value):
                return self if same(known, what) else None
            return self if type(known) is type(what) and known == what else None
        return Match({**self.bound, name: what}, self.nodes, self.moved)

    def of(self, *nodes: ir.Node | None) -> Match:
        """The match with more nodes."""
        more = [node for node in nodes if node is not None and all(node is not known for known in self.nodes)]
        return Match(self.bound, (*self.nodes, *more), self.moved)


def matches(pattern: Expression, value: ir.Value, opset: int) -> Iterator[Match]:
    """Every way in which a value is what a pattern says; nothing that a fix has made is looked at again."""
    found = list(_found(pattern, value, Match(), opset))
    if isinstance(pattern, Call) and pattern.operator in UNARY and not found:
        found = list(_across(pattern, value, opset))
    for match in found:
        read = [one.producer() for one in match.bound.values() if isinstance(one, ir.Value)]
        if not any((node.name or "").startswith(MARK) for node in (*match.nodes, *read) if node is not None):
            yield match


def _across(pattern: Call, value: ir.Value, opset: int) -> Iterator[Match]:
    """An operation element by element may be done before its operand's elements were moved."""
    root = seen_through(value).producer()
    if root is None or root.op_type != UNARY[pattern.operator] or not root.inputs:
        return
    moved: list[ir.Node] = []
    at = root.inputs[0]
    while at is not None:
        node = seen_through(at).producer()
        if node is None or node.op_type not in MOVES or node.inputs[0] is None:
            break
        moved.insert(0, node)
        at = node.inputs[0]
        for match in _found(pattern.arguments[0], at, Match(moved=tuple(moved)), opset):
            yield match.of(root, *moved)


def _found(pattern: Expression, value: ir.Value, match: Match, opset: int) -> Iterator[Match]:
    if len(match.nodes) > _DEEPEST:
        return
    match pattern:
        case Variable(name):
            bound = match.binds(name, value)
            if bound is not None:
                yield bound
        case Number(wanted):
            if wanted is not None and is_number(value, float(wanted)):
                yield match
        case Call():
            yield from _called(pattern, seen_through(value), match, opset)
        case _:
            return


def is_number(value: ir.Value, wanted: float) -> bool:
    """Whether a value is a constant, and everywhere this number, as far as its dtype can hold it."""
    held = number_of(value)
    return held is not None and bool(np.isclose(held, wanted, rtol=1e-3 if abs(wanted) > 1e-30 else 0, atol=0))


def _called(pattern: Call, value: ir.Value, match: Match, opset: int) -> Iterator[Match]:
    if pattern.operator == "vector_norm" and len(pattern.arguments) > 1:
        # the order stands before the axes
        if pattern.arguments[1] != Number(2):
            return
        pattern = Call("norm", (pattern.arguments[0], *pattern.arguments[2:]), pattern.named)
    name, arguments = pattern.operator, pattern.arguments
    node = value.producer()
    if node is None:
        return
    if name in NORMALISED and node.op_type == NORMALISED[name]:
        yield from _normalised(pattern, node, match, opset)
    elif name in REDUCTIONS and node.op_type == REDUCTIONS[name]:
        yield from _reduced(pattern, node, match, opset)
    elif name in UNARY and len(arguments) == 1 and node.op_type == UNARY[name] and node.inputs[0] is not None:
        yield from _found(arguments[0], node.inputs[0], match.of(node), opset)
    elif name in BINARY and len(arguments) == 2 and node.op_type == BINARY[name]:
        yield from _both(pattern, node, match, opset)
    elif name == "where" and node.op_type == "Where":
        yield from _all(arguments, node, match, opset)
    elif name in ("clamp", "clamp_min", "clamp_max") and node.op_type == "Clip":
        yield from _clamped(pattern, node, match, opset)
    yield from _otherwise(pattern, node, value, match, opset)


def _both(pattern: Call, node: ir.Node, match: Match, opset: int) -> Iterator[Match]:
    orders = [pattern.arguments]
    if pattern.operator in COMMUTATIVE:
        orders.append(pattern.arguments[::-1])
    for order in orders:
        yield from _all(order, node, match, opset)


def _all(arguments: tuple[Expression, ...], node: ir.Node, match: Match, opset: int) -> Iterator[Match]:
    if len(arguments) != len(node.inputs):
        return
    found = [match.of(node)]
    for argument, value in zip(arguments, node.inputs, strict=True):
        if value is None:
            return
        found = [more for one in found for more in _found(argument, value, one, opset)]
    yield from found


def _normalised(pattern: Call, node: ir.Node, match: Match, opset: int) -> Iterator[Match]:
    attribute = node.attributes.get("axis")
    axis = attribute.as_int() if attribute is not None else (-1 if opset >= ONE_AXIS else 1)
    value = node.inputs[0]
    if value is None:
        return
    for one in _found(pattern.arguments[0], value, match.of(node), opset):
        yield from _with_axes(pattern, 1, (axis,), None, one)


def _reduced(pattern: Call, node: ir.Node, match: Match, opset: int) -> Iterator[Match]:
    as_input = opset >= AXES_ARE_AN_INPUT.get(node.op_type, AXES_OTHERWISE)
    axes = axes_of(node, as_input=as_input)
    value = node.inputs[0]
    if axes is False or value is None:
        return
    kept = node.attributes.get("keepdims")
    keep = bool(kept.as_int()) if kept is not None else True
    for one in _found(pattern.arguments[0], value, match.of(node), opset):
        yield from _with_axes(pattern, 1, axes, keep, one)


def _with_axes(
    pattern: Call, first: int, axes: tuple[int, ...] | None, keep: bool | None, match: Match
) -> Iterator[Match]:
    """The axes and keepdim that a pattern asks for; what it does not name is whatever it is where no axis is named."""
    given: dict[str, Expression] = dict(pattern.named)
    rest = list(pattern.arguments[first:])
    asked = [given.get("dim", rest[0] if rest else None), given.get("keepdim", rest[1] if len(rest) > 1 else None)]
    if asked[0] is None and axes is not None:
        return
    for wanted, what in zip(asked, (axes, keep), strict=True):
        if isinstance(wanted, Variable):
            bound = match.binds(wanted.name, what)
            if bound is None:
                return
            match = bound
        elif isinstance(wanted, Number) and what != (wanted.value,) and what != wanted.value:
            return
    yield match


def _clamped(pattern: Call, node: ir.Node, match: Match, opset: int) -> Iterator[Match]:
    if opset < 11 or node.inputs[0] is None:
        return
    low, high = (node.inputs[i] if i < len(node.inputs) else None for i in (1, 2))
    asked: dict[str, Expression] = dict(pattern.named)
    rest = pattern.arguments[1:]
    names = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}[pattern.operator]
    asked |= dict(zip(names, rest, strict=False))
    found = list(_found(pattern.arguments[0], node.inputs[0], match.of(node), opset))
    for name, value in (("min", low), ("max", high)):
        wanted = asked.get(name)
        if (wanted is None) != (value is None):
            return
        if wanted is not None and value is not None:
            found = [more for one in found for more in _found(wanted, value, one, opset)]
    yield from found


def _otherwise(pattern: Call, node: ir.Node, value: ir.Value, match: Match, opset: int) -> Iterator[Match]:
    """Other nodes that compute the same: x * x is a square, 1 / x a reciprocal, the root of squares a norm."""
    name, arguments, op = pattern.operator, pattern.arguments, node.op_type
    if name == "atan2" and len(arguments) == 2:
        chain = arctangent(value)
        if chain is not None:
            for one in _found(arguments[0], chain.y, match.of(*chain.nodes), opset):
                yield from _found(arguments[1], chain.x, one, opset)
        return
    for other in _spellings(name, arguments, pattern, op):
        yield from _called(other, value, match, opset)


def _spellings(name: str, arguments: tuple[Expression, ...], pattern: Call, op: str) -> Iterator[Call]:
    match name, op:
        case (("mm" | "bmm" | "mv" | "dot"), "MatMul"):
            yield Call("matmul", arguments)
        case "masked_fill", "Where":
            yield Call("where", (arguments[1], arguments[2], arguments[0]))
        case "square", "Mul":
            yield Call("mul", (arguments[0], arguments[0]))
        case "square", "Pow":
            yield Call("pow", (arguments[0], Number(2)))
        case "mul", "Pow" if arguments[0] == arguments[1]:
            yield Call("pow", (arguments[0], Number(2)))
        case "pow", "Mul" if arguments[1] == Number(2):
            yield Call("mul", (arguments[0], arguments[0]))
        case "pow", "Sqrt" if arguments[1] == Number(0.5):
            yield Call("sqrt", (arguments[0],))
        case "sqrt", "Pow":
            yield Call("pow", (arguments[0], Number(0.5)))
        case "reciprocal", "Div":
            yield Call("div", (Number(1), arguments[0]))
        case "reciprocal", "Pow":
            yield Call("pow", (arguments[0], Number(-1)))
        case "div", "Reciprocal" if arguments[0] == Number(1):
            yield Call("reciprocal", (arguments[1],))
        case "div", "Mul":
            yield Call("mul", (arguments[0], Call("reciprocal", (arguments[1],))))
        case "rsqrt", "Reciprocal":
            yield Call("reciprocal", (Call("sqrt", arguments),))
        case "rsqrt", "Div":
            yield Call("div", (Number(1), Call("sqrt", arguments)))
        case "rsqrt", "Pow":
            yield Call("pow", (arguments[0], Number(-0.5)))
        case "log1p", "Log":
            yield Call("log", (Call("add", (arguments[0], Number(1))),))
        case "expm1", "Sub":
            yield Call("sub", (Call("exp", arguments), Number(1)))
        case "log2", "Div":
            yield Call("div", (Call("log", arguments), Number(float(np.log(2)))))
        case "log2", "Mul":
            yield Call("mul", (Call("log", arguments), Number(float(1 / np.log(2)))))
        case "log10", "Div":
            yield Call("div", (Call("log", arguments), Number(float(np.log(10)))))
        case "log10", "Mul":
            yield Call("mul", (Call("log", arguments), Number(float(1 / np.log(10)))))
        case (("norm" | "vector_norm"), "Sqrt"):
            squares = Call("square", arguments[:1])
            yield Call("sqrt", (Call("sum", (squares, *arguments[1:]), pattern.named),))
        case "sub", "Add":
            yield Call("add", (arguments[0], Call("neg", (arguments[1],))))
        case "neg", "Mul":
            yield Call("mul", (arguments[0], Number(-1)))
        case "sigmoid", ("Div" | "Reciprocal"):
            one = Number(1)
            below = Call("add", (one, Call("exp", (Call("neg", arguments),))))
            yield Call("div", (one, below))
        case _:
            return
