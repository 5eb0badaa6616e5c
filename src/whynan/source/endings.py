"""Loops that end where they are told to: what is raised to end code may be caught in it."""

# pyright: strict

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

GOES_ON: Final = "_whynan_goes_on"
"""The name that the code calls before each turn."""
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def ending(statements: Iterable[ast.stmt]) -> tuple[ast.stmt, ...]:
    """The same statements, whose ``while`` loops ask `GOES_ON` before each turn; positions stay."""
    copies = [copy.deepcopy(statement) for statement in statements]
    return tuple(made for each in copies if isinstance(made := _Ending().visit(each), ast.stmt))


class _Ending(ast.NodeTransformer):
    """Asks in the loops of one scope."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _SCOPES):
            return node
        self.generic_visit(node)
        if isinstance(node, ast.While):
            asked = ast.Call(ast.Name(GOES_ON, ast.Load()), [], [])
            node.test = ast.BoolOp(ast.And(), [asked, node.test])
            for made in (asked, asked.func, node.test):
                ast.copy_location(made, node.test.values[1])
        return node
