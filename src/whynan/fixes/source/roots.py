"""The expressions that a birth is part of, or that its value flows into: where a pattern may be rooted."""

# pyright: strict

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whynan.fixes.source.editing import Root
    from whynan.fixes.source.reading import Reader

_MOST_ROOTS: Final = 200


def roots_of(reader: Reader, birth: Root) -> Iterator[Root]:
    """The birth's expression, those around it, then those that read the names that it was given; the nearest first."""
    place = reader.place
    waiting: list[Root] = [birth]
    seen: set[ast.AST] = set()
    while waiting and len(seen) < _MOST_ROOTS:
        start = waiting.pop(0)
        chain: list[Root] = [start]
        for node in place.above(start):
            if isinstance(node, ast.AugAssign):
                chain.append(node)
            if not isinstance(node, (ast.expr, ast.keyword)):
                break
            if isinstance(node, ast.expr):
                chain.append(node)
        for node in chain:
            if node not in seen:
                seen.add(node)
                if not isinstance(node, (ast.Name, ast.Attribute, ast.Starred)):
                    yield node
        waiting += [load for node in chain for load in _readers(reader, node) if load not in seen]


def _readers(reader: Reader, value: Root) -> list[ast.Name]:
    """Where the name that an expression is the value of is read, and can be nothing else."""
    reaching = reader.reaching
    made = [d for d in reaching.definitions() if d.value is value]
    found = [
        node
        for node in reaching.at
        if isinstance(node, ast.Name) and any(reaching.only(node) is definition for definition in made)
    ]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def twins_of(reader: Reader, root: Root) -> list[Root]:
    """The other expressions of the function that are the same, of the same values."""
    if not isinstance(root, ast.expr) or not reader.is_pure(root):
        return []
    place, key = reader.place, reader.read(root).key
    found: list[Root] = []
    for node in ast.walk(reader.reaching.function):
        if type(node) is not type(root) or node is root or place.is_late(node):
            continue
        if root in place.above(node) or node in place.above(root):
            continue
        if place.function(node) is reader.reaching.function and reader.read(node).key == key:
            found.append(node)
    return found
