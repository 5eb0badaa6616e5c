"""The expressions of fixes as trees: what a pattern asks for and what a replacement makes."""

# pyright: strict

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from whynan.errors import UsageError
from whynan.source.spelling import COMPARISONS

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
