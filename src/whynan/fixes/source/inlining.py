"""What a call of a small function of the same file computes, as a term of its caller."""

# pyright: strict

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from whynan.fixes.source.terms import Term, applied, power, product_of, sum_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.fixes.source.places import Place
    from whynan.fixes.source.reading import Reader


def helper_of(place: Place, callee: ast.expr) -> ast.FunctionDef | None:
    """The function of the module that a call is of, where it can be no other and only computes a value."""
    if not isinstance(callee, ast.Name) or place.tree is None:
        return None
    named = [n for n in place.tree.body if isinstance(n, ast.FunctionDef) and n.name == callee.id]
    stored = [
        n for n in place.parents if isinstance(n, ast.Name) and n.id == callee.id and isinstance(n.ctx, ast.Store)
    ]
    arguments = [n for n in place.parents if isinstance(n, ast.arg) and n.arg == callee.id]
    if len(named) != 1 or stored or arguments or callee.id in place.imports:
        return None
    function = named[0]
    given = function.args
    if function.decorator_list or given.vararg or given.kwarg or given.posonlyargs:
        return None
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        return None
    return function if all(isinstance(s, (ast.Assign, ast.AnnAssign)) for s in body[:-1]) else None


def result_of(function: ast.FunctionDef) -> ast.expr:
    """The expression that such a function returns."""
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    assert last.value is not None
    return last.value


def arguments_of(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments of a call by parameter, defaults among them; None where they do not fit."""
    parameters = [a.arg for a in [*function.args.args, *function.args.kwonlyargs]]
    positional = [a.arg for a in function.args.args]
    if len(call.args) > len(positional) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    given = dict(zip(positional, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in given:
            return None
        given[keyword.arg] = keyword.value
    defaults = dict(zip(reversed(positional), reversed(function.args.defaults), strict=False))
    for name, value in [
        *defaults.items(),
        *zip([a.arg for a in function.args.kwonlyargs], function.args.kw_defaults, strict=True),
    ]:
        if value is not None:
            given.setdefault(name, value)
    return given if set(given) == set(parameters) else None


def inlined(inner: Reader, term: Term, arguments: dict[str, Term]) -> Term | None:
    """A term of a called function as one of its caller: its parameters as what they were given; None where it cannot.

    Names of the module stay, and names of the function become what they stand for.
    """
    if term.name == "leaf":
        return _leaf(inner, term, arguments)
    if not term.children:
        return term
    children: list[tuple[str, Term]] = []
    for parameter, child in term.children:
        found = inlined(inner, child, arguments)
        if found is None:
            return None
        children.append((parameter, found))
    if all(new is old for (_, new), (_, old) in zip(children, term.children, strict=True)):
        return term
    operands = [child for _, child in children]
    rebuilt: Callable[[], Term] = {
        "add": lambda: sum_of(operands, own=term.own, hidden=term.hidden),
        "mul": lambda: product_of(operands, own=term.own),
        "pow": lambda: power(operands[0], operands[1], own=term.own, divided=term.origin is not None),
    }.get(term.name, lambda: applied(term.name, children, own=term.own))
    return rebuilt()


def _leaf(inner: Reader, term: Term, arguments: dict[str, Term]) -> Term | None:
    node = term.node
    made = inner.expanded(term)
    if made is not None:
        return inlined(inner, made, arguments)
    if isinstance(node, ast.Name):
        definition = inner.reaching.only(node)
        if definition is not None and isinstance(definition.node, ast.arg):
            return arguments.get(node.id)
    if node is None or not inner.is_pure(node):
        return None
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    if any(definition.node is not None for name in names for definition in inner.reaching.of(name)):
        return None
    return replace(term, key=("global", ast.dump(node)))
