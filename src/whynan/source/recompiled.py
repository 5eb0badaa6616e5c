"""The code of what a function goes on to do, made from its syntax: what it was, on its own."""

# pyright: strict

from __future__ import annotations
import __future__

import ast
from types import CodeType
from typing import TYPE_CHECKING, Final

from whynan.source.tails import first_parameter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from whynan.source.tails import Tail

_FACTORY: Final = "_whynan_factory"
_FUTURE: Final = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


def compiled(tail: Tail, *, parameters: Collection[str] = (), free: Collection[str] = ()) -> CodeType:
    """The code of a tail, with the file, the qualified name and the positions of the original.

    Of a module: code to ``exec`` where its live names and those of its `Loop.items` are bound. Of a function: the
    code of one that takes `parameters` (the live locals that have a value, and the items), in the order of its
    ``co_varnames``, for ``FunctionType(code, globals, name, None, closure)`` with the cells that its ``co_freevars``
    names. `free` are the names that are to be cells of the caller's: the original's ``co_freevars``, and of its
    ``co_cellvars`` those that functions made before share with it (not the ``self`` that ``super()`` asks for).
    Every other local stays one. Raises: ValueError for a name that is in both.
    """
    code, cls, statements = tail.owner.code, tail.owner.cls, list(tail.statements)
    if isinstance(tail.owner.node, ast.Module):
        return _compiled(statements, code)
    if both := set(parameters) & set(free):
        raise ValueError(f"a name is either a parameter or free, not both: {', '.join(sorted(both))}")
    name = code.co_name
    # super() takes the first parameter for self
    ordered = sorted(parameters, key=lambda parameter: (parameter not in first_parameter(tail.owner), parameter))
    inner = _function(name, ordered, [*_declarations(tail, parameters, free), *statements])
    cells: list[ast.stmt] = [ast.Assign([ast.Name(n, ast.Store())], ast.Constant(None)) for n in sorted(free)]
    path = [_FACTORY, name]
    outer: ast.stmt = _function(_FACTORY, (), [*cells, inner])
    # in a class again, for the sake of __x
    if cls is not None:
        outer, path = ast.ClassDef(cls, [], [], [outer], []), [cls, *path]
    # only what was made here has no position yet
    _placed(outer, code.co_firstlineno)
    found = _compiled([outer], code)
    for step in path:
        found = next(c for c in found.co_consts if isinstance(c, CodeType) and c.co_name == step)
    return _renamed(found, found.co_qualname, code.co_qualname)


def _compiled(statements: list[ast.stmt], code: CodeType) -> CodeType:
    flags = code.co_flags & _FUTURE
    return compile(ast.Module(statements, []), code.co_filename, "exec", flags=flags, dont_inherit=True)


def _function(name: str, parameters: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = ast.arguments([], [ast.arg(parameter) for parameter in parameters], None, [], [], None, [])
    return ast.FunctionDef(name, arguments, body or [ast.Pass()], [])


def _declarations(tail: Tail, parameters: Collection[str], free: Collection[str]) -> Iterator[ast.stmt]:
    if tail.global_names:
        yield ast.Global(sorted(tail.global_names))
    if shared := tail.stored.intersection(free):
        yield ast.Nonlocal(sorted(shared))
    for name in sorted(tail.local_names.difference(parameters, free)):
        # a bare annotation makes a name local and does nothing
        yield ast.AnnAssign(ast.Name(name, ast.Store()), ast.Constant(None), None, 1)


def _placed(node: ast.AST, line: int) -> None:
    for child in ast.walk(node):
        if isinstance(child, (ast.expr, ast.stmt, ast.arg)) and not hasattr(child, "lineno"):
            child.lineno = child.end_lineno = line
            child.col_offset = child.end_col_offset = 0


def _renamed(code: CodeType, old: str, new: str) -> CodeType:
    """Code whose qualified names, and those of the code in it, begin with `new` in place of `old`."""
    constants = tuple(_renamed(c, old, new) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_consts=constants, co_qualname=new + code.co_qualname.removeprefix(old))
