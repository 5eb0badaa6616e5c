"""Formulas that were written again for other names, in the next lines."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from typing import TYPE_CHECKING, Final

from whynan.source.definitions import blocks_of
from whynan.source.text import own_names

if TYPE_CHECKING:
    from whynan.source.text import Place

_OPERATIONS: Final = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript)
_LEAST: Final = 4
"""A formula of fewer operations is no sign that it was copied, but where one of its names comes twice in it."""
_LEAST_OF_ONE_NAME: Final = 2


def is_copy(place: Place, one: ast.AST, other: ast.AST) -> bool:
    """Whether two expressions are the same part of neighbouring assignments that differ in names alone.

    Between the two may only be further copies; ``log(p).mean()`` twice is no copy, since so little is written anew.
    """
    first, last = sorted((place.statement(one), place.statement(other)), key=lambda statement: statement.lineno)
    block = next((block for block in blocks_of(place.parents[first]) if first in block and last in block), None)
    if block is None or first is last:
        return False
    formulas = [_formula(place, statement) for statement in block[block.index(first) : block.index(last) + 1]]
    places = [[*ast.walk(place.statement(node))].index(node) for node in (one, other)]
    return formulas[0] is not None and len({*formulas}) == 1 and places[0] == places[1]


def _formula(place: Place, statement: ast.stmt) -> str | None:
    """What an assignment to one name computes, its own names numbered; None of anything else, and of what is short."""
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
            numbered = _Numbered(own_names(place.function(statement)))
            formula = ast.unparse(numbered.visit(copy.deepcopy(value)))
            operations = sum(isinstance(node, _OPERATIONS) for node in ast.walk(value))
            least = _LEAST_OF_ONE_NAME if max(numbered.uses.values(), default=0) > 1 else _LEAST
            is_sum = ast.unparse(target) in numbered.uses
            return None if operations < least or is_sum else formula
        case _:
            return None


class _Numbered(ast.NodeTransformer):
    """Gives the names of a function, and the members of its ``self``, numbers in the order in which they come."""

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self.uses = Counter[str]()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._number(node) if node.id in self._own else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        is_member = isinstance(node.value, ast.Name) and node.value.id == "self"
        return self._number(node) if is_member else self.generic_visit(node)

    def _number(self, node: ast.expr) -> ast.expr:
        name = ast.unparse(node)
        self.uses[name] += 1
        return ast.Name(f"_{[*self.uses].index(name)}", ast.Load())
