"""The imports of a file: as statements by the name that they give, and added where a replacement needs one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, cast

from whynan.source.syntax import imported_by
from whynan.source.text import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def visible(place: Place, node: ast.AST) -> dict[str, str]:
    """What names stand for at a node by the imports that have run wherever the node does.

    That is nothing (an empty text) of a name that a function around it imports later, or not always.
    """
    found: dict[str, str] = {}
    scopes = [scope for scope in place.above(node) if isinstance(scope, (*_FUNCTIONS, ast.Module))]
    for name, statements in place.importing.items():
        if name in place.assigned_names:
            continue
        for scope in scopes:
            own = [statement for statement in statements if _home(place, statement) is scope]
            meanings = {imported_by(statement)[name] for statement in own}
            if len(meanings) == 1 and any(_has_run(place, statement, node) for statement in own):
                found[name] = meanings.pop()
            elif own and not isinstance(scope, ast.Module):
                found[name] = ""
            if own:
                break
    return found


def _home(place: Place, node: ast.AST) -> ast.AST | None:
    kinds = (*_FUNCTIONS, ast.ClassDef, ast.Module)
    return next((parent for parent in place.above(node) if isinstance(parent, kinds)), None)


def _has_run(place: Place, statement: ast.AST, node: ast.AST) -> bool:
    """Whether a statement is ahead of a node, or of what that is part of, in one block."""
    block = place.parents[statement]
    for part in (node, *place.above(node)):
        if place.parents.get(part) is block:
            held = (cast("list[ast.AST]", value) for _, value in ast.iter_fields(block) if isinstance(value, list))
            return any(statement in rows and part in rows[rows.index(statement) :] for rows in held)
    return False


def statements_of(place: Place) -> dict[str, str]:
    """For each imported name a statement that imports it alone; relative imports are left out."""
    found: dict[str, str] = {}
    for node in place.parents:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = ast.unparse(ast.Import([alias]))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                if alias.name != "*":
                    found[alias.asname or alias.name] = ast.unparse(ast.ImportFrom(node.module, [alias], 0))
    return found


def with_imports(text: str, modules: Iterable[str]) -> str:
    """A file's text with modules imported at its top, after its docstring and what it imports from the future."""
    import libcst
    from libcst.codemod import CodemodContext
    from libcst.codemod.visitors import AddImportsVisitor

    context = CodemodContext()
    for module in sorted(modules):
        AddImportsVisitor.add_needed_import(context, module)
    head = text[: _first_other(text)]  # to go through the whole of a long file takes seconds
    added = AddImportsVisitor(context).transform_module(libcst.parse_module(head)).code
    if text[len(head) :] and not added.endswith(("\n", "\r")):
        added += "\r\n" if "\r\n" in text else "\n"
    return added + text[len(head) :]


def _first_other(text: str) -> int:
    """Where the first statement begins that is no docstring and no import."""
    place = Place(text)
    for statement in place.tree.body if place.tree is not None else []:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_text and not isinstance(statement, (ast.Import, ast.ImportFrom)):
            decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
            start = min(place.span(node)[0] for node in (statement, *decorators))
            return max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    return len(text)
