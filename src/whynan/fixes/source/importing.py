"""The imports of a file: as statements by the name that they give, and added where a replacement needs one."""

# pyright: strict

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.fixes.source.places import Place


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
    return AddImportsVisitor(context).transform_module(libcst.parse_module(text)).code
