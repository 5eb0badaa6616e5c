"""A piece of a function's source as a function of what it reads, before and after an edit."""

from __future__ import annotations

import ast
import builtins
import keyword
from typing import TYPE_CHECKING, Final

from whynan.fixes.candidates import Formula
from whynan.source.calls import operator_of
from whynan.source.dataflow import Reaching
from whynan.source.text import Place, apply_edits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

Edit = tuple[int, int, str]
"""A span of the text, and what is to stand there."""
_OF_TENSORS: Final = frozenset({"shape", "dtype", "T", "mT", "H", "mH", "device", "ndim", "data"})
_ATTRIBUTES: Final = frozenset({"values", "indices"})


def functional(place: Place, node: ast.expr | ast.AugAssign, edits: Sequence[Edit] = ()) -> str:
    """The text of an expression that changes nothing: what it writes in place is computed instead."""
    start, end = place.span(node)
    for first, last, text in edits:
        # its parentheses went with it
        if first < start and end < last and not (place.text[first:start] + place.text[end:last]).strip("() \n"):
            return text
    own = [e for e in edits if start <= e[0] and e[1] <= end]
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and operator_of(place, inner)[1]:
            stop = place.span(inner.func)[1]
            if not any(e[0] <= stop - 1 < e[1] for e in own):
                own.append((stop - 1, stop, ""))
    if isinstance(node, ast.AugAssign):
        value = place.span(node.value)
        inner_edits = [(a - value[0], b - value[0], t) for a, b, t in own if value[0] <= a and b <= value[1]]
        right = apply_edits(place.code(node.value), inner_edits)
        symbol = ast.unparse(ast.BinOp(ast.Name("a"), node.op, ast.Name("b")))[2:-2]
        return f"{place.code(node.target)} {symbol} ({right})"
    return apply_edits(place.text[start:end], [(a - start, b - start, t) for a, b, t in own])


def assignment_source(name: str, text: str) -> str:
    """An assignment, as a line of a body."""
    return f"{name} = ({text}\n)" if _is_long(text) else f"{name} = {text}"


def return_source(text: str) -> str:
    """The return of a value."""
    return f"return ({text}\n)" if _is_long(text) else f"return {text}"


def helpers_in(place: Place, body: Sequence[str]) -> list[str]:
    """The functions of the file that a body calls, and that these call, as lines before it."""
    assert place.tree is not None
    functions = {n.name: n for n in place.tree.body if isinstance(n, ast.FunctionDef) and not n.decorator_list}
    found: dict[str, ast.FunctionDef] = {}
    waiting: list[ast.AST] = [_function_place(body).tree or ast.Module([], [])]
    while waiting:
        for node in ast.walk(waiting.pop()):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
            if name is not None and name in functions and name not in found:
                found[name] = functions[name]
                waiting.append(functions[name])
    return [ast.unparse(function) for function in found.values()]


def _is_long(text: str) -> bool:
    return "\n" in text or "\r" in text or "#" in text


def formula_pair(
    before: Sequence[str],
    after: Sequence[str],
    line: int,
    imports: dict[str, str],
    added: Iterable[str] = (),
    *,
    names: frozenset[str] | None = None,
    own: frozenset[str] = frozenset(),
) -> tuple[Formula, Formula]:
    """Two bodies as formulas of the same inputs; ``imports`` are the file's statements by the name that they give.

    ``names`` are those that the bodies read as they were before them; without it those are, which they assign nowhere,
    and which no import or builtin gives: but those of the function's ``own`` hide these.
    """
    known = {*dir(builtins), *imports, *(module.partition(".")[0] for module in added)} - own
    chains = list(
        dict.fromkeys(
            chain for body in (before, after) for _, chain in _free_variables(_function_place(body), known, names)
        )
    )
    parameters = _parameters(chains)
    called = dict(zip(chains, parameters, strict=True))

    def formula(body: Sequence[str]) -> Formula:
        place = _function_place(body)
        edits = [(*place.span(node), called[c]) for node, c in _free_variables(place, known, names) if called[c] != c]
        text = "\n".join(line[1:] for line in apply_edits(place.text, edits)[len(_HEAD) :].split("\n"))
        read = {n.id for n in place.parents if isinstance(n, ast.Name)}
        needed = [imports[name] for name in sorted(read & imports.keys())]
        needed += [f"import {module}" for module in sorted(added) if module.partition(".")[0] in read - imports.keys()]
        return Formula(tuple(chains), tuple(parameters), line, text, tuple(dict.fromkeys(needed)))

    return formula(before), formula(after)


_HEAD: Final = "def body():\n"


def _function_place(body: Sequence[str]) -> Place:
    """A body as that of a function."""
    lines = "\n".join(body).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return Place(_HEAD + "\n".join(f" {line}" for line in lines))


def _is_callee(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents.get(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _chains(place: Place) -> list[tuple[ast.expr, ast.Name, str]]:
    """The longest chains of attributes that are read as values: the node, the name that it begins with, its text."""
    parents = place.parents
    found: list[tuple[ast.expr, ast.Name, str]] = []
    for node in parents:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        top: ast.expr = node
        while isinstance(parent := parents.get(top), ast.Attribute):
            if parent.attr in {*_OF_TENSORS, *_ATTRIBUTES, "size"} or (
                _is_callee(parent, parents) and node.id != "self"
            ):
                break
            if _is_callee(parent, parents) and isinstance(top, ast.Attribute) and node.id == "self":
                break  # a method of what the attribute holds: self.weight.exp()
            top = parent
        found.append((top, node, ast.unparse(top)))
    return sorted(found, key=lambda chain: (chain[0].lineno, chain[0].col_offset))


def _free_variables(place: Place, known: Collection[str], given: frozenset[str] | None) -> list[tuple[ast.expr, str]]:
    """What a body reads as it was before it; ``known`` are the names that need not be given."""
    assert place.tree is not None
    (body,) = place.tree.body
    assert isinstance(body, ast.FunctionDef)
    reaching = Reaching(place, body)
    free: list[tuple[ast.expr, str]] = []
    for node, name, chain in _chains(place):
        if not any(definition.node is None for definition in reaching.definitions_at(name)):
            continue
        if name.id in given if given is not None and place.function(name) is body else name.id not in known:
            free.append((node, chain))
    return free


def _parameters(chains: Sequence[str]) -> list[str]:
    taken: list[str] = []
    for chain in chains:
        base = chain.replace(".", "_")
        base = f"{base}_" if keyword.iskeyword(base) else base
        name, i = base, 2
        while name in taken or (name != chain and name in chains):
            name, i = f"{base}_{i}", i + 1
        taken.append(name)
    return taken
