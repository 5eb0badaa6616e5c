"""Branches of a selection, each computed of operands for which it is taken: a double where of whole branches."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from whynan.expr.pattern import constant_value
from whynan.fixes.python.double_where import DoubleWhere, selection_of
from whynan.fixes.python.edit import Edited, Editor, hoist_obstacle
from whynan.fixes.python.write import UnwritableError
from whynan.source.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.expr.from_python import Reader
    from whynan.fixes.python.edit import Root
    from whynan.source.dataflow import Definition

_OPPOSITE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_MIRRORED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
}


_NO_VALUES: Final = frozenset({"dtype", "shape", "device", "ndim"})


class Branch(NamedTuple):
    """What a selection takes where its mask holds (``when`` True) or does not: an expression, and its definition."""

    value: ast.expr
    when: bool
    definition: Definition | None


class Mask(NamedTuple):
    """A comparison of a variable, or of its magnitude, with a number; ``node`` is what the selection has of it."""

    node: ast.expr
    variable: ast.Name
    symbol: type[ast.cmpop]
    limit: float

    def harmless(self, when: bool) -> float:
        """A number for which a branch is taken, as far from the limit as that is from 0, or 1."""
        symbol = self.symbol if when else _OPPOSITE[self.symbol]
        if symbol in (ast.Gt, ast.GtE):
            return 2 * self.limit if self.limit > 0 else self.limit + 1
        if symbol in (ast.Lt, ast.LtE):
            return self.limit / 2 if self.limit > 0 else self.limit - 1
        return self.limit if symbol is ast.Eq else self.limit + 1


def harmless_branches(reader: Reader, birth: Root) -> tuple[DoubleWhere, list[Edited]] | None:
    """The edits that give each branch of the selection around a birth operands for which it is taken.

    None where the selection is none of two branches by a comparison of what both are computed of.
    """
    chosen = selection_of(reader, birth, factors=False)
    if chosen is None or not isinstance(chosen.node, ast.Call):
        return None
    term = reader.read(chosen.node)
    mask = _mask_of(reader, chosen.mask) if term.name == "where" and len(term.children) == 3 else None
    if mask is None:
        return None
    branches = [*_branches(reader, chosen.node, mask)]
    if not any(birth in ast.walk(branch.value) for branch in branches):
        return None
    title = f"operands for which each branch of {shortened(reader.place.code(mask.node))} is taken"
    definitions = (*chosen.definitions, *(b.definition for b in branches if b.definition is not None))
    found = DoubleWhere(title, chosen.node, [], definitions=tuple(dict.fromkeys(definitions)))
    try:
        return found, _edits(reader, mask, branches)
    except UnwritableError:
        return None


def _mask_of(reader: Reader, node: ast.expr) -> Mask | None:
    made: ast.expr | ast.AugAssign | None = node
    if isinstance(node, ast.Name) and (known := reader.reaching.single_definition(node)) is not None:
        made = known.value
    if not isinstance(made, ast.Compare) or len(made.ops) != 1:
        return None
    symbol, sides = type(made.ops[0]), (made.left, made.comparators[0])
    values = [constant_value(side, reader.place.meaning) for side in sides]
    if values[0] is not None:
        symbol, sides, values = _MIRRORED.get(symbol, symbol), sides[::-1], values[::-1]
    variable = _variable(reader, sides[0])
    if values[1] is None or variable is None or symbol not in _OPPOSITE:
        return None
    return Mask(node, variable, symbol, values[1])


def _variable(reader: Reader, node: ast.expr) -> ast.Name | None:
    """The name that is compared, as it is or by its magnitude."""
    if isinstance(node, ast.Name):
        return node
    term = reader.read(node)
    inner = term.operands[0].node if term.name == "abs" and term.operands else None
    return inner if isinstance(inner, ast.Name) else None


def _branches(reader: Reader, node: ast.Call, mask: Mask) -> Iterator[Branch]:
    """The branches that are computed of the variable, here or as a name that nothing else reads."""
    for operand, when in zip(reader.read(node).operands[1:], (True, False), strict=True):
        value, definition = operand.node, None
        if isinstance(value, ast.Name):
            definition = reader.reaching.single_definition(value)
            if definition is None or not isinstance(definition.value, ast.expr):
                continue
            if reader.reaching.readers_of(definition.value) != [value]:
                continue
            value = definition.value
        if isinstance(value, ast.expr) and not isinstance(value, ast.Name) and [*_loads(reader, value, mask)]:
            yield Branch(value, when, definition)


def _loads(reader: Reader, value: ast.expr, mask: Mask) -> Iterator[ast.Name]:
    """Where a branch reads the variable without a choice by the same mask."""
    known = reader.reaching.definitions_at(mask.variable)
    wanted, waiting = reader.read(mask.node).key, list[ast.AST]([value])
    while waiting:
        node = waiting.pop()
        chosen = reader.read(node) if isinstance(node, ast.Call) else None
        if chosen is not None and chosen.name == "where" and chosen.operands and chosen.operands[0].key == wanted:
            continue
        if isinstance(node, ast.Attribute) and node.attr in _NO_VALUES:
            continue
        if isinstance(node, ast.Name) and node.id == mask.variable.id and reader.reaching.definitions_at(node) == known:
            yield node
        waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.expr, ast.keyword))]


def _edits(reader: Reader, mask: Mask, branches: list[Branch]) -> list[Edited]:
    place, editor = reader.place, Editor(reader)
    found: list[Edited] = []
    taken = set(place.names)
    for value, when, _ in branches:
        reason = hoist_obstacle(reader, value, [])
        if reason is not None:
            raise UnwritableError(reason)
        statement = place.statement(value)
        for name in (n for n in ast.walk(mask.node) if isinstance(n, ast.Name)):
            if reader.reaching.definitions_at(name) != reader.reaching.definitions_before(statement, name.id):
                raise UnwritableError(f"{name.id} of the mask is not known yet where the operand is read")
        writer = editor.writer(value)
        base = f"{mask.variable.id}_safe"
        own = next(n for n in (base, *(f"{base}_{i}" for i in range(2, 100))) if n not in taken)
        taken.add(own)
        given = [mask.variable.id, repr(mask.harmless(when))]
        text = f"{writer.torch()}.where({place.code(mask.node)}, {', '.join(given if when else given[::-1])})"
        edits = [(*place.span(load), own) for load in _loads(reader, value, mask)]
        found.append(Edited(value, edits, writer.imports, above=((own, text),)))
    return found
