"""Expressions of fixes as trees, how ONNX writes their operators, and what is known of a value."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import onnx_ir as ir

from whynan.errors import UsageError
from whynan.ops.spelling import COMPARISONS

# -- The expressions of fixes as trees: what a pattern asks for and what a replacement makes ---------------------------


_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.BitAnd: "logical_and",
    ast.BitOr: "logical_or",
}
_SAME: Final = {
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "absolute": "abs",
    "clip": "clamp",
    "log_sigmoid": "logsigmoid",
    "max_": "amax",
    "greater": "gt",
    "less": "lt",
    "square_": "square",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """Stands for any expression, the same one wherever it occurs."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number, a truth value or None as it is written."""

    value: float | int | bool | None


@dataclass(frozen=True, slots=True)
class Limit:
    """``finfo(x).tiny``: a limit of the dtype of an expression."""

    of: Expression
    which: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator on its arguments; ``named`` are those given by keyword."""

    operator: str
    arguments: tuple[Expression, ...]
    named: tuple[tuple[str, Expression], ...] = ()


Expression = Variable | Number | Limit | Call


class Unreadable(UsageError):  # noqa: N818
    """An expression that is none of the language."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"{text!r} is no expression of a fix: {why}", "FixIntent says what one is")


@lru_cache(maxsize=512)
def parsed(text: str) -> Expression:
    """The tree of an expression; raises ``Unreadable`` for what is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise Unreadable(text, "it cannot be parsed") from error
    return _read(tree, text)


def _read(node: ast.expr, text: str) -> Expression:
    match node:
        case ast.Name(id=name):
            return Variable(name)
        case ast.Constant(value=bool() | int() | float() | None as value):
            return Number(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return Call(_BINARY[type(op)], (_read(left, text), _read(right, text)))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            return Call(COMPARISONS[type(op)], (_read(left, text), _read(right, text)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _read(operand, text)
            if isinstance(inner, Number) and inner.value is not None:
                return Number(-inner.value)
            return Call("neg", (inner,))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return Call("logical_not", (_read(operand, text),))
        case ast.Attribute(value=ast.Call(func=ast.Name(id="finfo"), args=[of]), attr=which):
            return Limit(_read(of, text), which)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            named = tuple((str(keyword.arg), _read(keyword.value, text)) for keyword in keywords)
            return Call(_SAME.get(name, name), tuple(_read(argument, text) for argument in arguments), named)
        case _:
            raise Unreadable(text, f"{ast.unparse(node)} has no meaning in it")


def variables(expression: Expression) -> frozenset[str]:
    """The names of the variables of an expression."""
    match expression:
        case Variable(name):
            return frozenset((name,))
        case Number():
            return frozenset()
        case Limit(of):
            return variables(of)
        case Call(_, arguments, named):
            parts = (*arguments, *(value for _, value in named))
            return frozenset[str]().union(*(variables(part) for part in parts))


# -- How the operators of the language of fixes are written in ONNX, and which node is which of them -------------------


UNARY: Final = {
    "neg": "Neg",
    "abs": "Abs",
    "sign": "Sign",
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "relu": "Relu",
    "tanh": "Tanh",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "erf": "Erf",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "isnan": "IsNaN",
    "logical_not": "Not",
}
BINARY: Final = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "lt": "Less",
    "gt": "Greater",
    "eq": "Equal",
    "logical_and": "And",
    "logical_or": "Or",
    "matmul": "MatMul",
}
COMMUTATIVE: Final = frozenset({"add", "mul", "maximum", "minimum", "eq", "logical_and", "logical_or"})
REDUCTIONS: Final = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "amax": "ReduceMax",
    "max": "ReduceMax",
    "amin": "ReduceMin",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
    "norm": "ReduceL2",
    "vector_norm": "ReduceL2",
}
AXES_ARE_AN_INPUT: Final = {"ReduceSum": 13}
"""Since which opset; all other reductions since 18."""
AXES_OTHERWISE: Final = 18
NORMALISED: Final = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}
ONE_AXIS: Final = 13
"""The opset since which a softmax is one over its axis, and no longer over all axes from it on."""
MOVES: Final = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Expand"})
"""What hands on elements of its first operand."""
ELEMENTWISE: Final = frozenset(
    {
        *UNARY.values(),
        *(BINARY[name] for name in BINARY if name != "matmul"),
        *("Where", "Clip", "Cast", "Identity", "IsInf", "GreaterOrEqual", "LessOrEqual", "Mod", "Elu", "Selu"),
        *("LeakyRelu", "HardSigmoid", "HardSwish", "Gelu", "Softsign", "Xor", "Sum", "Mean", "Mish"),
    }
)
MARK: Final = "whynan_"
"""How the names of the nodes begin that a fix has made."""


# -- What is known of a value of a graph: its number if it is a constant, its dtype, whether it is another's twin ------


_LARGEST: Final = 4096
"""Elements of a constant that is read."""
_DEEP: Final = 6


def seen_through(value: ir.Value) -> ir.Value:
    """The value that it is a copy of."""
    node = value.producer()
    while node is not None and node.inputs and node.inputs[0] is not None:
        within = node.inputs[0]
        if node.op_type != "Identity" and not (node.op_type == "Cast" and _keeps(node, within)):
            break
        value, node = within, within.producer()
    return value


def _keeps(node: ir.Node, value: ir.Value) -> bool:
    to = node.attributes.get("to")
    return to is not None and value.dtype is not None and to.as_int() == value.dtype.value


def constant(value: ir.Value) -> Any | None:
    """The elements of a small constant; None for anything else, and for what lies in another file."""
    value = seen_through(value)
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
    held = constant(value)
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
        held = constant(given)
        return False if held is None else tuple(int(axis) for axis in np.atleast_1d(held))
    attribute = node.attributes.get("axes")
    return None if attribute is None else tuple(attribute.as_ints())


def same(one: ir.Value, other: ir.Value, depth: int = _DEEP) -> bool:
    """Whether two values are the same, or computed in the same way from the same ones."""
    one, other = seen_through(one), seen_through(other)
    if one is other:
        return True
    held, beside = constant(one), constant(other)
    if held is not None and beside is not None:
        return held.dtype == beside.dtype and held.shape == beside.shape and held.tobytes() == beside.tobytes()
    mine, its = one.producer(), other.producer()
    if mine is None or its is None or not depth or mine.op_identifier() != its.op_identifier():
        return False
    if one.index() != other.index() or len(mine.inputs) != len(its.inputs) or _stated(mine) != _stated(its):
        return False
    return all(
        (a is None and b is None) or (a is not None and b is not None and same(a, b, depth - 1))
        for a, b in zip(mine.inputs, its.inputs, strict=True)
    )


def _stated(node: ir.Node) -> dict[str, str]:
    return {name: str(attribute.value) for name, attribute in node.attributes.items()}
