"""The values of expressions that are made of numbers alone."""

# pyright: strict

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from whynan.source.definitions import arithmetic

if TYPE_CHECKING:
    from whynan.fixes.source.places import Place

_NAMED: Final = {"pi": math.pi, "inf": math.inf, "nan": math.nan}
"""What these names are in a replacement."""


def number_of(place: Place | None, node: ast.AST) -> float | None:
    """The value of an expression of numbers alone, those of ``math`` among them; None for any other."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = number_of(place, operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=symbol, right=right):
            first, second = number_of(place, left), number_of(place, right)
            if first is None or second is None:
                return None
            return arithmetic(symbol, first, second)
        case ast.Attribute() if place is not None:
            names = place.meaning(node)
            value = getattr(math, names[1], None) if names and names[0] == "math" and len(names) == 2 else None
            return float(value) if isinstance(value, float) else None
        case ast.Call(func=callee, args=arguments, keywords=[]) if place is not None:
            names = place.meaning(callee)
            values = [number_of(place, a) for a in arguments]
            if names and names[0] == "math" and len(names) == 2 and values and None not in values:
                return _evaluated(names[1], [v for v in values if v is not None])
            return None
        case _:
            return None


def _evaluated(name: str, values: list[float]) -> float | None:
    function = getattr(math, name, None)
    try:
        value = function(*values) if callable(function) else None
    except (ValueError, TypeError, ArithmeticError):
        return None
    return float(value) if isinstance(value, (int, float)) else None


def folded(node: ast.expr) -> float | None:
    """The value of a part of a replacement that is made of numbers alone."""
    match node:
        case ast.Name(id=name):
            return _NAMED.get(name)
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = folded(operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            first, second = folded(left), folded(right)
            return None if first is None or not second else first / second
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            first, second = folded(left), folded(right)
            return None if first is None or second is None else first * second
        case ast.Call(func=ast.Name(id=("log" | "sqrt" | "exp") as name), args=[argument]):
            inner = folded(argument)
            return None if inner is None or inner <= 0 else float(getattr(math, name)(inner))
        case _:
            return None
