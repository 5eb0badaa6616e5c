"""The small functions of a file whose calls can be read as what they compute, and the arguments of such a call."""

# pyright: strict

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.fixes.source.places import Place


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
