"""Terms from an ONNX graph: its values as names, each defined by the node that writes it; and where patterns match."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import onnx_ir as ir

from whynan.expr.match import Match, Matcher, Missing
from whynan.expr.pattern import formula, pattern
from whynan.expr.term import Term, apply_operator, bind_arguments, canonical_term, number
from whynan.fixes.onnx.formulas import OTHERWISE
from whynan.ops.signatures import SIGNATURES
from whynan.ops.table import ONNX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

AXES_ARE_AN_INPUT: Final = {"ReduceSum": 13}
"""Since which opset; all other reductions since 18."""
AXES_OTHERWISE: Final = 18
ONE_AXIS: Final = 13
"""The opset since which a softmax is one over its axis, and no longer over all axes from it on."""
MARK: Final = "whynan_"
"""How the names of the nodes begin that a fix has made."""


# -- What is known of a value of a graph: its number if it is a constant, its dtype, what it is a copy of --------------


_LARGEST: Final = 4096
"""Elements of a constant that is read."""
_DEEP: Final = 6


def copy_source(value: ir.Value) -> ir.Value:
    """The value that it is a copy of."""
    node = value.producer()
    while node is not None and node.inputs and node.inputs[0] is not None:
        within = node.inputs[0]
        if node.op_type != "Identity" and not (node.op_type == "Cast" and _keeps_dtype(node, within)):
            break
        value, node = within, within.producer()
    return value


def _keeps_dtype(node: ir.Node, value: ir.Value) -> bool:
    to = node.attributes.get("to")
    return to is not None and value.dtype is not None and to.as_int() == value.dtype.value


def constant_array(value: ir.Value) -> Any | None:
    """The elements of a small constant; None for anything else, and for what lies in another file."""
    value = copy_source(value)
    tensor = value.const_value
    node = value.producer()
    if tensor is None and node is not None and node.op_type == "Constant":
        tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or isinstance(tensor, ir.ExternalTensor) or tensor.size > _LARGEST:
        return None
    if value.is_graph_input() and node is None:
        # an initializer that may be given otherwise
        return None
    try:
        return tensor.numpy()
    except (TypeError, ValueError):
        return None


def number_of(value: ir.Value) -> float | None:
    """The number that a constant is everywhere."""
    held = constant_array(value)
    if held is None or held.size == 0 or held.dtype.kind in "OSU":
        return None
    numbers = np.asarray(held, np.float64).ravel()
    return float(numbers[0]) if (numbers == numbers[0]).all() else None


def axes_of(node: ir.Node, *, as_input: bool) -> tuple[int, ...] | Literal[False] | None:
    """The axes of a reduction, None for all of them; False where they are not known."""
    if as_input:
        given = node.inputs[1] if len(node.inputs) > 1 else None
        if given is None:
            nothing = node.attributes.get("noop_with_empty_axes")
            return False if nothing is not None and nothing.as_int() else None
        held = constant_array(given)
        return False if held is None else tuple(int(axis) for axis in np.atleast_1d(held))
    attribute = node.attributes.get("axes")
    return None if attribute is None else tuple(attribute.as_ints())


# -- The terms of a graph ----------------------------------------------------------------------------------------------


_NAMES: Final = ONNX.column("function")
_ARC: Final = "atan(input / other)"
_ANGLE: Final = f"where(other < 0, where(input > 0, {_ARC} + 3.1415927, {_ARC} - 3.1415927), {_ARC})"
_WRITTEN_OUT: Final = {
    **{name: (text,) for name, text in OTHERWISE.items()},
    "vector_norm": ("sqrt(sum(input ** 2, dim=dim, keepdim=keepdim))",),
    "sigmoid": ("1 / (1 + exp(-input))",),
    # as torch's exporters write it; the default one puts 0 where that is NaN
    "atan2": (_ANGLE, f"where(isnan({_ANGLE}), 0, {_ANGLE})"),
}
"""How exporters write operators that ONNX has not, or has since later opsets."""


class GraphReader:
    """The terms of a graph's values."""

    tolerance = 1e-3  # a float16 holds no more

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._keys: dict[tuple[int, int], object] = {}
        self._operands: dict[ir.Value, Term] = {}
        self._terms: dict[ir.Value, Term | None] = {}

    def operand(self, value: ir.Value) -> Term:
        """A value as an operand: the number that it is everywhere, or its name."""
        if value not in self._operands:
            held, key = number_of(value), ("leaf", self._key(value, _DEEP))
            self._operands[value] = Term("leaf", key=key, node=value) if held is None else number(held, value)
        return self._operands[value]

    def expand(self, term: Term) -> Term | None:
        """The operator that writes a value, on its operands."""
        return self.read(term.node) if term.name == "leaf" else None

    def definition(self, term: Term) -> None:
        """None: a value of a graph is the same wherever it is read."""
        del term

    def is_equivalent(self, first: Term, second: Term) -> bool:
        """Whether two terms are the same, or computed in the same way from the same values."""
        return first.key == second.key

    def unwrap(self, term: Term) -> tuple[Term, ir.Node] | None:
        """What a node moves, and the node."""
        return (term.operands[0], term.node) if term.name == "moved" else None

    def decompositions(self, pattern: Term) -> list[Term]:
        """A pattern as exporters write it out."""
        return [formula(text, dict(pattern.children)) for text in _WRITTEN_OUT.get(pattern.name, ())]

    def is_division(self, node: object) -> bool:
        """Whether a node is a division."""
        return isinstance(node, ir.Node) and node.op_type == "Div"

    def read(self, value: ir.Value) -> Term | None:
        """The term of what a value's node computes; None where that is no operator of the language."""
        if value not in self._terms:
            self._terms[value] = self._term(value)
        return self._terms[value]

    def _term(self, value: ir.Value) -> Term | None:
        node = copy_source(value).producer()
        if node is None or not node.inputs or node.inputs[0] is None:
            return None
        own = frozenset({node})
        first = self.operand(node.inputs[0])
        if node.op_type in ONNX.having("first-operand"):
            return apply_operator("moved", [("input", first)], node, own=own)
        name = _NAMES.get(node.op_type)
        given = None if name is None else self._arguments(name, node, first)
        if name is None or given is None:
            return None
        term = canonical_term(name, given, None, own)
        if term.name != "leaf":
            return term
        # x + 0 and x * 1 are operators too
        return canonical_term(name, [(p, replace(one, name="leaf")) for p, one in given], None, own)

    def _arguments(self, name: str, node: ir.Node, first: Term) -> list[tuple[str, Term]] | None:
        """The arguments of a node by the names of the operator's parameters; None where they are not known."""
        if name in ("softmax", "log_softmax"):
            axis = node.attributes.get("axis")
            return [
                ("input", first),
                ("dim", _attribute_setting(axis.as_int() if axis else -1 if self._opset >= ONE_AXIS else 1)),
            ]
        if node.op_type in ONNX.having("reduction"):
            axes = axes_of(node, as_input=self._opset >= AXES_ARE_AN_INPUT.get(node.op_type, AXES_OTHERWISE))
            keep = node.attributes.get("keepdims")
            if axes is False:
                return None
            named = {} if axes is None else {"dim": _attribute_setting(axes[0] if len(axes) == 1 else axes)}
            return bind_arguments(
                name,
                [first],
                named | {"keepdim": _attribute_setting(bool(keep.as_int()) if keep is not None else True)},
            )
        parameters = SIGNATURES.get(name, ("input",))
        if len(node.inputs) > len(parameters) or (name == "clamp" and self._opset < _LIMITS_ARE_INPUTS):
            return None
        return [(p, self.operand(v)) for p, v in zip(parameters, node.inputs, strict=False) if v is not None]

    def _key(self, value: ir.Value, depth: int) -> object:
        """What two values have in common that are computed in the same way."""
        value = copy_source(value)
        known = self._keys.get((id(value), depth))
        if known is None:
            known = self._keys[id(value), depth] = self._producer_key(value, depth)
        return known

    def _producer_key(self, value: ir.Value, depth: int) -> object:
        held, node = constant_array(value), value.producer()
        if held is not None:
            return str(held.dtype), held.shape, held.tobytes()
        if node is None or not depth:
            return id(value)
        stated = {name: str(attribute.value) for name, attribute in node.attributes.items()}
        read = tuple(None if one is None else self._key(one, depth - 1) for one in node.inputs)
        return node.op_identifier(), value.index(), tuple(sorted(stated.items())), read


_LIMITS_ARE_INPUTS: Final = 11


def _attribute_setting(value: int | bool | tuple[int, ...]) -> Term:
    """A setting of a node: which axes, whether they are kept."""
    if type(value) is int:
        return number(value, value)
    return Term("constant", text=repr(value), key=("constant", repr(value)), node=value)


# -- Where a pattern matches -------------------------------------------------------------------------------------------


Bound = ir.Value | tuple[int, ...] | int | float | bool | None
"""What a variable stands for: a value of the graph, axes, a truth value, or what is missing."""


@dataclass(frozen=True, slots=True)
class GraphMatch:
    """A pattern that was found: what its variables are, which nodes make it up, and what was moved on the way.

    ``moved`` are the nodes between the operation at the root and its operand that only move elements, the first to
    run first.
    """

    bound: Mapping[str, Bound]
    nodes: tuple[ir.Node, ...]
    moved: tuple[ir.Node, ...] = ()


def matches(wanted: str, value: ir.Value, reader: GraphReader) -> Iterator[GraphMatch]:
    """Every way in which a value is what a pattern says; nothing that a fix has made is looked at again."""
    root, term = copy_source(value).producer(), reader.read(value)
    if root is None or term is None:
        return
    whole, tree = pattern(wanted)
    names = [node.id for node in sorted(_names_in(tree), key=lambda node: node.col_offset)]
    for match in Matcher(reader).matches(whole, term):
        nodes = _in_order(root, match)
        values = {name: _value(match.variables[name], nodes) for name in names if name in match.variables}
        if match.factors or match.terms or any(given is Ellipsis for given in values.values()):
            continue
        read = [one.producer() for one in values.values() if isinstance(one, ir.Value)]
        marked = any((node.name or "").startswith(MARK) for node in (*nodes, *read) if node is not None)
        if not marked and _moves_operands_only(root, match.wrappers):
            yield GraphMatch(values, nodes, match.wrappers)


def _names_in(tree: ast.expr) -> list[ast.Name]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _value(given: Term | Missing, nodes: tuple[ir.Node, ...]) -> Any:
    """What a variable stands for; an ellipsis for what is written nowhere."""
    if isinstance(given, Missing):
        return None
    if given.node is not None or given.name != "number":
        return ... if given.node is None else given.node
    # a factor of a product, or a term of a sum, which the number of a constant has become
    read = (one for node in nodes for one in node.inputs if one is not None)
    return next((one for one in read if (n := number_of(one)) is not None and np.isclose(n, given.value, 1e-9, 0)), ...)


def _in_order(root: ir.Node, match: Match) -> tuple[ir.Node, ...]:
    """The nodes of a match from its root up."""
    found: dict[ir.Node, None] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node not in found and node in match.nodes:
            found[node] = None
            read = [copy_source(one).producer() for one in node.inputs if one is not None]
            waiting += [one for one in reversed(read) if one is not None]
    return tuple(found)


def _moves_operands_only(root: ir.Node, moved: tuple[ir.Node, ...]) -> bool:
    """Whether nodes stand right before one that computes element by element from nothing else."""
    waiting = list(moved)
    at = root.inputs[0]
    while waiting and at is not None and (node := copy_source(at).producer()) is waiting[-1]:
        waiting.pop()
        at = None if node is None else node.inputs[0]
    return not waiting and (not moved or (root.op_type in ONNX.having("pointwise") and len(root.inputs) == 1))
