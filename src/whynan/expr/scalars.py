"""Numbers of Python's, as far as a function shows that an expression is one: sizes, and what is computed of them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from whynan.expr.from_python import Reader

_METHODS: Final = ("size", "numel", "dim", "item")
_BUILTINS: Final = ("len", "int", "float")


def is_scalar(reader: Reader, node: ast.AST | None) -> bool:
    """Whether an expression is a number of Python's for certain: ``x.size(1)``, ``len(x)``, a part of ``x.shape``."""
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return is_scalar(reader, operand)
        case ast.BinOp(left=left, right=right):
            return is_scalar(reader, left) and is_scalar(reader, right)
        case ast.Subscript(value=value, slice=index):
            return _is_shape(value) and not isinstance(index, ast.Slice)
        case ast.Call(func=ast.Name(id=name)):
            return name in _BUILTINS and name not in reader.place.assigned_names
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _METHODS and not _is_shape(node)
        case ast.Name():
            return _is_scalar_name(reader, node)
        case _:
            return False


def _is_scalar_name(reader: Reader, name: ast.Name) -> bool:
    made = reader.reaching.single_definition(name)
    if made is None or made.written or not isinstance(made.node, ast.Name):
        return False
    if made.value is not None:
        return is_scalar(reader, made.value)
    statement = reader.place.statement(made.node)
    if not isinstance(statement, ast.Assign) or not _is_shape(statement.value):
        return False
    return any(isinstance(target, ast.Tuple) and made.node in target.elts for target in statement.targets)


def _is_shape(node: ast.AST) -> bool:
    """Whether an expression is all sizes of a tensor."""
    match node:
        case ast.Attribute(attr="shape"):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[], keywords=[]):
            return True
        case _:
            return False
