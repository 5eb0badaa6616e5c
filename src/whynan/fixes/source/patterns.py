"""Reads a pattern of the language of intents as a term."""

# pyright: strict

from __future__ import annotations

import ast

from whynan.fixes.source import signatures
from whynan.fixes.source.canonical import BINARY, bound, canonical_term
from whynan.fixes.source.constants import number_of
from whynan.fixes.source.terms import NONE, Nodes, Term, applied, number, product_of, sliced
from whynan.source import spelling


def pattern(text: str) -> tuple[Term, ast.expr]:
    """A pattern of the language of intents as a term, with the tree whose nodes its parts are."""
    tree = ast.parse(text, mode="eval").body
    return _pattern(tree), tree


def _pattern(node: ast.expr) -> Term:
    own: Nodes = frozenset({node})
    constant = number_of(None, node)
    if constant is not None:
        return number(constant, node)
    match node:
        case ast.Name(id=name):
            return Term("variable", text=name, key=("variable", name), node=node)
        case ast.Constant(value=value):
            return Term("constant", text=repr(value), key=("constant", repr(value)), node=node)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return product_of([number(-1), _pattern(operand)], node, own=own)
        case ast.BinOp(left=left, op=symbol, right=right):
            name = BINARY[type(symbol)]
            parameters = ("input", "exponent" if name == "pow" else "other")
            given = list(zip(parameters, (_pattern(left), _pattern(right)), strict=True))
            return canonical_term(name, given, node, own)
        case ast.Compare(left=left, ops=[symbol], comparators=[right]):
            given = [("input", _pattern(left)), ("other", _pattern(right))]
            return applied(spelling.COMPARISONS[type(symbol)], given, node, own=own)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            operator = signatures.canonical(name)[0]
            named = {k.arg: _pattern(k.value) for k in keywords if k.arg is not None}
            given = bound(operator, [_pattern(a) for a in arguments], named) or []
            if operator in ("max", "min") and len(given) == 1:
                operator = "a" + operator
            return canonical_term(operator, given, node, own)
        case ast.Attribute(value=value, attr=attribute):
            return applied("." + attribute, [("input", _pattern(value))], node, own=own)
        case ast.Subscript(value=value):
            return sliced(_pattern(value), node)
        case _:
            return applied(ast.dump(node), [], node, own=NONE)
