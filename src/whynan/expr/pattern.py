"""Patterns: expressions in Python's syntax whose names stand for any term, and the values of constant expressions."""

from __future__ import annotations

import ast
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from whynan.expr.term import NONE, Term, apply_operator, bind_arguments, canonical_term, number, product_of
from whynan.ops import signatures, spelling
from whynan.source.definitions import arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whynan.expr.term import Nodes


# -- The values of expressions of numbers alone ------------------------------------------------------------------------


_NAMED: Final = frozenset("pi inf nan log sqrt exp".split())
"""What a replacement calls as ``math`` does."""


def constant_value(node: ast.AST, meaning: Callable[[ast.expr], list[str] | None]) -> float | None:
    """The value of an expression of numbers, and of what ``meaning`` says is of ``math``; None for any other."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = constant_value(operand, meaning)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=symbol, right=right):
            first, second = constant_value(left, meaning), constant_value(right, meaning)
            return None if first is None or second is None else arithmetic(symbol, first, second)
        case ast.Name() | ast.Attribute():
            value = _math_names(meaning(node))
            return value if isinstance(value, float) else None
        case ast.Call(func=callee, args=arguments, keywords=[]):
            function = _math_names(meaning(callee))
            values = [constant_value(argument, meaning) for argument in arguments]
            return _result(function, values) if callable(function) and values and None not in values else None
        case _:
            return None


def _math_names(names: list[str] | None) -> object:
    return getattr(math, names[1], None) if names and names[0] == "math" and len(names) == 2 else None


def _result(function: Callable[..., object], values: list[float | None]) -> float | None:
    try:
        value = function(*values)
    except (ValueError, TypeError, ArithmeticError):
        return None
    return float(value) if isinstance(value, (int, float)) else None


def fold_constant(node: ast.expr) -> float | None:
    """The value of a part of a replacement that is made of numbers alone."""
    return constant_value(node, lambda n: ["math", n.id] if isinstance(n, ast.Name) and n.id in _NAMED else None)


# -- Subscripts of slices ----------------------------------------------------------------------------------------------


def sliced_source(value: Term, node: ast.Subscript) -> Term:
    """A part of a tensor, with its slices as they are written."""
    index = Term("constant", text=subscript_source(node), key=("constant", ast.dump(node.slice)))
    return apply_operator("slice", [("input", value), ("index", index)], node, own=frozenset({node}))


def subscript_source(node: ast.Subscript) -> str:
    """What stands between the brackets of a subscript."""
    bare = ast.Subscript(ast.Name("x", ast.Load()), node.slice, ast.Load())
    return ast.unparse(bare).removeprefix("x[").removesuffix("]")


def is_sliced(node: ast.Subscript) -> bool:
    """Whether a subscript is of slices and numbers alone: ``[..., 1:]``, and not ``[0]`` nor ``[mask]``."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    known = (ast.Slice, ast.Constant, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context, ast.Tuple)
    return any(isinstance(p, ast.Slice) for p in parts) and all(isinstance(n, known) for n in ast.walk(node.slice))


# -- Patterns ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def pattern(text: str) -> tuple[Term, ast.expr]:
    """A pattern as a term, with the tree whose nodes its parts are."""
    tree = ast.parse(text, mode="eval").body
    return _pattern(tree, {}), tree


def formula(text: str, operands: Mapping[str, Term]) -> Term:
    """The term of a formula whose names are operands; an argument by keyword is left out where its operand is none."""
    return _pattern(ast.parse(text, mode="eval").body, operands)


def _pattern(node: ast.expr, operands: Mapping[str, Term]) -> Term:
    def read(part: ast.expr) -> Term:
        return _pattern(part, operands)

    own: Nodes = frozenset({node})
    value = constant_value(node, lambda _: None)
    if value is not None:
        return number(value, node)
    match node:
        case ast.Name(id=name):
            return operands.get(name) or Term("variable", text=name, key=("variable", name), node=node)
        case ast.Constant(value=value):
            return Term("constant", text=repr(value), key=("constant", repr(value)), node=node)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return product_of([number(-1), read(operand)], node, own=own)
        case ast.BinOp(left=left, op=symbol, right=right):
            return canonical_term(*binary(symbol, read(left), read(right)), node, own)
        case ast.Compare(left=left, ops=[symbol], comparators=[right]):
            given = [("input", read(left)), ("other", read(right))]
            return apply_operator(spelling.COMPARISONS[type(symbol)], given, node, own=own)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            operator = signatures.canonical(name)[0]
            absent = {k.arg for k in keywords if operands and isinstance(k.value, ast.Name) and k.arg not in operands}
            named = {k.arg: read(k.value) for k in keywords if k.arg is not None and k.arg not in absent}
            given = bind_arguments(operator, [read(argument) for argument in arguments], named) or []
            if operator in ("max", "min") and len(given) == 1:
                operator = "a" + operator
            return canonical_term(operator, given, node, own)
        case ast.Attribute(value=value, attr=attribute):
            return apply_operator("." + attribute, [("input", read(value))], node, own=own)
        case ast.Subscript(value=value):
            return sliced_source(read(value), node)
        case _:
            return apply_operator(ast.dump(node), [], node, own=NONE)


def binary(symbol: ast.operator, first: Term, second: Term) -> tuple[str, list[tuple[str, Term]]]:
    """The operator of a symbol, and its operands by parameter."""
    name = spelling.SYMBOLS[type(symbol)]
    return name, [("input", first), ("exponent" if name == "pow" else "other", second)]
