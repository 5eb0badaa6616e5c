"""An expression as a term: one form for the many spellings of one computation."""

# pyright: strict

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Key = object
Nodes = frozenset[ast.AST]
NONE: Nodes = frozenset()


@dataclass(frozen=True, eq=False)
class Term:
    """An operator and its operands by parameter; a ``number``; a ``leaf``, which is any other expression of the source.

    Sums (``add``) and products (``mul``) have any number of operands in any order, and no other sum or product directly
    in them; what is divided by is a ``pow`` to a negative number, its ``origin`` the divisor. In a pattern a
    ``variable`` stands for any term.

    ``node`` is what the term is written as, None for a part that no expression of the source is; ``own`` are the
    operator nodes that the term is made of, its operands apart. A ``hidden`` term is computed within an operator
    (``1 + x`` in ``log1p(x)``).
    """

    name: str
    children: tuple[tuple[str, Term], ...] = ()
    value: float = 0.0
    text: str = ""
    key: Key = None
    node: ast.expr | ast.AugAssign | None = None
    own: Nodes = NONE
    hidden: bool = False
    origin: Term | None = None

    @property
    def operands(self) -> tuple[Term, ...]:
        """The operands, without their parameters' names."""
        return tuple(child for _, child in self.children)

    def child(self, parameter: str) -> Term | None:
        """The operand that is given for a parameter."""
        return next((child for name, child in self.children if name == parameter), None)


def number(value: float, node: ast.expr | None = None) -> Term:
    """A constant."""
    return Term("number", value=float(value), key=("number", float(value)), node=node)


def applied(
    name: str,
    children: Iterable[tuple[str, Term]],
    node: ast.expr | ast.AugAssign | None = None,
    *,
    own: Nodes = NONE,
) -> Term:
    """An operator on its operands."""
    given = tuple(children)
    return Term(name, given, key=(name, tuple((p, c.key) for p, c in given)), node=node, own=own)


def sliced(value: Term, node: ast.Subscript) -> Term:
    """A part of a tensor, with its slices as they are written."""
    index = Term("constant", text=index_of(node), key=("constant", ast.dump(node.slice)))
    return applied("slice", [("input", value), ("index", index)], node, own=frozenset({node}))


def index_of(node: ast.Subscript) -> str:
    """What stands between the brackets of a subscript."""
    bare = ast.Subscript(ast.Name("x", ast.Load()), node.slice, ast.Load())
    return ast.unparse(bare).removeprefix("x[").removesuffix("]")


def is_sliced(node: ast.Subscript) -> bool:
    """Whether a subscript is of slices and numbers alone: ``[..., 1:]``, and not ``[0]`` nor ``[mask]``."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    known = (ast.Slice, ast.Constant, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context, ast.Tuple)
    return any(isinstance(p, ast.Slice) for p in parts) and all(isinstance(n, known) for n in ast.walk(node.slice))


def sum_of(
    terms: Sequence[Term], node: ast.expr | ast.AugAssign | None = None, *, own: Nodes = NONE, hidden: bool = False
) -> Term:
    """The sum of terms; numbers are added up, sums in it opened."""
    constant, items, nodes = 0.0, list[Term](), set(own)
    for term in terms:
        inner = term.operands if term.name == "add" else (term,)
        if term.name == "add":
            nodes |= term.own
        for item in inner:
            if item.name == "number":
                constant += item.value
            else:
                items.append(item)
    if constant or not items:
        items.append(number(constant))
    if len(items) == 1:
        return replace(items[0], node=node or items[0].node, own=items[0].own | own)
    key = ("add", tuple(sorted(repr(item.key) for item in items)))
    return Term("add", tuple(("", i) for i in items), key=key, node=node, own=frozenset(nodes), hidden=hidden)


def product_of(factors: Sequence[Term], node: ast.expr | ast.AugAssign | None = None, *, own: Nodes = NONE) -> Term:
    """The product of factors; numbers are multiplied, products in it opened, equal factors made a square."""
    constant, items, nodes = 1.0, list[Term](), set(own)
    for factor in factors:
        if factor.name == "mul":
            nodes |= factor.own
        for item in factor.operands if factor.name == "mul" else (factor,):
            if item.name == "number":
                constant *= item.value
            else:
                items.append(item)
    items = _squared(items, own)
    if constant != 1 or not items:
        items.insert(0, number(constant))
    if len(items) == 1:
        return replace(items[0], node=node or items[0].node, own=items[0].own | own)
    key = ("mul", tuple(sorted(repr(item.key) for item in items)))
    return Term("mul", tuple(("", i) for i in items), key=key, node=node, own=frozenset(nodes))


def _squared(items: list[Term], own: Nodes) -> list[Term]:
    found: list[Term] = []
    for item in items:
        same = next((i for i, other in enumerate(found) if other.key == item.key and item.name != "pow"), None)
        if same is None:
            found.append(item)
        else:
            found[same] = power(found[same], number(2), own=own)
    return found


def power(
    base: Term,
    exponent: Term,
    node: ast.expr | ast.AugAssign | None = None,
    *,
    own: Nodes = NONE,
    divided: bool = False,
) -> Term:
    """A power; ``divided`` says that it is a divisor."""
    origin = base if divided else None
    if exponent.name == "number":
        if base.name == "number" and (base.value > 0 or exponent.value == int(exponent.value)) and base.value:
            return number(base.value**exponent.value)
        inner = base.child("exponent") if base.name == "pow" else None
        if exponent.value == -1 and inner is not None and inner.name == "number":
            found = power(base.operands[0], number(-inner.value), node, own=own | base.own)
            return replace(found, origin=origin)
        if exponent.value == 1:
            return replace(base, own=base.own | own)
    found = applied("pow", (("input", base), ("exponent", exponent)), node, own=own)
    return replace(found, origin=origin)


def negated(term: Term) -> Term:
    """The term with the other sign."""
    return product_of([number(-1), term])


def coefficient(term: Term) -> tuple[float, list[Term]]:
    """The number that a product has as a factor, and its other factors."""
    if term.name == "number":
        return term.value, []
    if term.name != "mul":
        return 1.0, [term]
    constant = math.prod(item.value for item in term.operands if item.name == "number")
    return constant, [item for item in term.operands if item.name != "number"]
