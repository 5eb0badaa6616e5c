"""What the operands of an expression were made of, as far up in its function as that is safe to compute again."""

# pyright: strict

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from whynan.fixes.source.signatures import CASTS, ELEMENTWISE, VIEWS, operator_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.fixes.source.editing import Root
    from whynan.fixes.source.places import Place
    from whynan.fixes.source.reaching import Definition
    from whynan.fixes.source.reading import Reader

_MOST_LEVELS: Final = 6
_FOLLOWED: Final = (
    ELEMENTWISE
    | VIEWS
    | CASTS
    | frozenset(
        "softmax log_softmax softmin logsumexp sum mean prod amax amin max min std var vector_norm normalize cumsum "
        "cumprod cosine_similarity finfo".split()
    )
)
"""Operators that can make a 0 of what is none, or pass it on, and whose exact values are cheap."""
_READ: Final = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.Tuple),
    *(ast.List, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context),
)


def levels(reader: Reader, root: Root, known: Sequence[Definition]) -> Iterator[list[Definition]]:
    """The definitions of what an expression and the known definitions read, one level after the other.

    Each level has all before it. A definition is followed where no other can have made the value there, where it is an
    expression of PyTorch's operators alone, and where it was computed under the same context managers.
    """
    found = list(known)
    pieces: list[Root] = [root, *(d.value for d in known if d.value is not None)]
    for _ in range(_MOST_LEVELS):
        read = [name for piece in pieces for name in _names(piece)]
        new = [d for d in dict.fromkeys(_followed(reader, root, name) for name in read) if d is not None]
        new = [d for d in new if d not in found]
        if not new:
            return
        found += new
        pieces = [d.value for d in new if d.value is not None]
        yield list(found)


def _names(piece: Root) -> list[ast.Name]:
    """The names that an expression reads, that of an augmented assignment's target among them."""
    target = [piece.target] if isinstance(piece, ast.AugAssign) and isinstance(piece.target, ast.Name) else []
    return [*target, *(n for n in ast.walk(piece) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))]


def _followed(reader: Reader, root: Root, name: ast.Name) -> Definition | None:
    """The definition of a name where it is read, if it is one that can be followed."""
    place = reader.place
    found = reader.reaching.only(name)
    if found is None or found.written or not isinstance(found.value, ast.expr):
        return None
    statement = place.statement(found.value)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is not found.value:
        return None
    if place.is_late(name) or not isinstance(found.node, ast.Name) or not reader.is_pure(found.value):
        return None
    same = _managers(place, statement) == _managers(place, place.statement(root))
    return found if same and all(_is_followed(place, node) for node in ast.walk(found.value)) else None


def _managers(place: Place, statement: ast.stmt) -> list[ast.AST]:
    """The context managers that a statement is under."""
    return [node for node in place.above(statement) if isinstance(node, (ast.With, ast.AsyncWith))]


def _is_followed(place: Place, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name, in_place = operator_of(place, node)
        return name in _FOLLOWED and not in_place
    return isinstance(node, _READ) and not isinstance(node, ast.MatMult)
