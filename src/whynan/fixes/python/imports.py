"""The imports of a file: as statements by the name that they give, and added where a replacement needs one."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING, Final, cast

from whynan.source.syntax import imported_by
from whynan.source.text import Place, place_of

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
                names = place.read_as(meanings.pop().split("."))
                found[name] = ".".join(names or ())
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
    place = place_of(text)
    body = place.tree.body if place.tree is not None else []
    head = itertools.takewhile(_is_of_head, body)
    imported = {alias.name for node in head if isinstance(node, ast.Import) for alias in node.names if not alias.asname}
    newline = "\r\n" if "\r\n" in text else "\n"
    added = "".join(f"import {module}{newline}" for module in sorted({*modules} - imported))
    at = place.line_start(_first_import_line(body))
    if added and at and text[at - 1] not in "\r\n":
        added = newline + added
    return text[:at] + added + text[at:]


def _is_of_head(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, (ast.Import, ast.ImportFrom))


def _first_import_line(body: list[ast.stmt]) -> int:
    """The line ahead of which an import may stand first: after the docstring and the imports from the future."""
    line = 1
    for number, node in enumerate(body):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if is_docstring or is_future or node.lineno < line:
            # what begins in the last line of these is gone by too
            line = (node.end_lineno or node.lineno) + 1
        elif line == 1:
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            return min(part.lineno for part in (node, *decorators))
        else:
            break
    return line
