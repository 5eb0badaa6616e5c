"""Which names may share memory, and which calls write into what a name holds."""

# pyright: strict

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whynan.fixes.source.signatures import FRESH, operator_of

if TYPE_CHECKING:
    from whynan.fixes.source.places import Function, Place


def root_of(node: ast.AST) -> ast.Name | None:
    """The name that a chain of attributes, subscripts and methods begins with."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case _:
                return None
    return node


def written_by(call: ast.Call) -> ast.Name | None:
    """The name whose value a call writes into: by a method in place, or by ``out=``."""
    for keyword in call.keywords:
        if keyword.arg == "out":
            return root_of(keyword.value)
        if keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value and call.args:
            return root_of(call.args[0])
    if isinstance(call.func, ast.Attribute):
        name = call.func.attr
        if name.endswith("_") and not name.endswith("__"):
            receiver = call.func.value
            if isinstance(receiver, ast.Name) and receiver.id in ("torch", "F", "init") and call.args:
                return root_of(call.args[0])
            return root_of(receiver)
    return None


def related(place: Place, function: Function | ast.Module) -> dict[str, set[str]]:
    """For each name those whose values may share memory with its value."""
    groups: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        names = {t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)}
        names |= shared(place, value)
        merged = set(names)
        for name in names:
            merged |= groups.get(name, set())
        for name in merged:
            groups[name] = merged
    return groups


def shared(place: Place, value: ast.AST) -> set[str]:
    """The names whose memory the value of an expression may share."""
    match value:
        case ast.Name():
            return {value.id}
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Constant() | ast.JoinedStr():
            return set()
        case ast.Call():
            name, in_place = operator_of(place, value)
            if name is not None and name in FRESH and not in_place:
                return set()
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return {name for part in parts for name in shared(place, part)}
        case _:
            pass
    return {n.id for n in ast.walk(value) if isinstance(n, ast.Name) and n.id not in place.imports}
