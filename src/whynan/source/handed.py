"""Functions that are handed to a branch or a loop (``torch.cond``, ``scan``): from which expression a node is."""

# pyright: strict

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from whynan.source.asking import called, candidates, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.source.asking import Asked
    from whynan.source.syntax import Spanned, Syntax

BODY: Final = "<eval_with_key>"
"""How the name of a file begins that PyTorch makes for such a function when it is exported."""
_TAKERS: Final = frozenset("cond while_loop scan map associative_scan".split())
_Function: TypeAlias = "ast.FunctionDef | ast.Lambda"


def taking(nodes: Sequence[Spanned]) -> ast.Call | None:
    """The only call in a line that takes functions for a branch or a loop."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and called(node) in _TAKERS]
    return calls[0] if len(calls) == 1 else None


def within(syntax: Syntax, call: ast.Call, mine: Asked, beside: Sequence[Asked]) -> Spanned | None:
    """The expression that a node stands for in one of the functions that a call takes.

    None where that is not certain: which function it is must be told by the operators of all its nodes, each as often
    as the function asks for it.
    """
    if mine not in beside:
        return None
    counts = Counter(asked.operator for asked in beside)
    there = frozenset(counts)
    found: list[list[Spanned]] = []
    for function in _handed(syntax, call):
        nodes = list(_parts(function))
        if all(len(candidates(nodes, operator, there)) == count for operator, count in counts.items()):
            found.append(nodes)
    return chosen(found[0], mine, beside, syntax.parents) if len(found) == 1 else None


def _handed(syntax: Syntax, call: ast.Call) -> Iterator[_Function]:
    """The functions among the arguments, as far as the file has just one of their name."""
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        match argument:
            case ast.Lambda():
                yield argument
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
                named = [node for node in syntax.parents if isinstance(node, ast.FunctionDef) and node.name == name]
                if len(named) == 1:
                    yield named[0]
            case _:
                pass


def _parts(function: _Function) -> Iterator[Spanned]:
    """The expressions and statements of a function, without those of functions in it."""
    waiting: list[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, (ast.expr, ast.stmt)):
            yield node
        waiting += ast.iter_child_nodes(node)
