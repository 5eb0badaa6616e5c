"""A piece of a function's source as a function of what it reads, before and after an edit."""

from __future__ import annotations

import ast
import builtins
import keyword
from typing import TYPE_CHECKING, Final

from whynan.fixes.candidates import Formula
from whynan.source.calls import operator_of
from whynan.source.text import Place, dotted, replaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Edit = tuple[int, int, str]
"""A span of the text, and what is to stand there."""
_OF_TENSORS: Final = frozenset(
    {"shape", "dtype", "T", "mT", "H", "mH", "device", "ndim", "data", "grad", "real", "imag"}
)
_ATTRIBUTES: Final = frozenset({"values", "indices"})


def functional(place: Place, node: ast.expr | ast.AugAssign, edits: Sequence[Edit] = ()) -> str:
    """The text of an expression that changes nothing: what it writes in place is computed instead."""
    start, end = place.span(node)
    own = [e for e in edits if start <= e[0] and e[1] <= end]
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and operator_of(place, inner)[1]:
            stop = place.span(inner.func)[1]
            if not any(e[0] <= stop - 1 < e[1] for e in own):
                own.append((stop - 1, stop, ""))
    if isinstance(node, ast.AugAssign):
        value = place.span(node.value)
        inner_edits = [(a - value[0], b - value[0], t) for a, b, t in own if value[0] <= a and b <= value[1]]
        right = replaced(place.code(node.value), inner_edits)
        symbol = ast.unparse(ast.BinOp(ast.Name("a"), node.op, ast.Name("b")))[2:-2]
        return f"{place.code(node.target)} {symbol} ({right})"
    return replaced(place.text[start:end], [(a - start, b - start, t) for a, b, t in own])


def assigned(name: str, text: str) -> str:
    """An assignment, as a line of a body."""
    return f"{name} = ({text}\n)" if _is_long(text) else f"{name} = {text}"


def returned(text: str) -> str:
    """The return of a value."""
    return f"return ({text}\n)" if _is_long(text) else f"return {text}"


def helpers_in(place: Place, body: Sequence[str]) -> list[str]:
    """The functions of the file that a body calls, and that these call, as lines before it."""
    assert place.tree is not None
    functions = {n.name: n for n in place.tree.body if isinstance(n, ast.FunctionDef) and not n.decorator_list}
    found: dict[str, ast.FunctionDef] = {}
    waiting: list[ast.AST] = [ast.parse("def body():\n" + _indented(body))]
    while waiting:
        for node in ast.walk(waiting.pop()):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
            if name is not None and name in functions and name not in found:
                found[name] = functions[name]
                waiting.append(functions[name])
    return [ast.unparse(function) for function in found.values()]


def _is_long(text: str) -> bool:
    return "\n" in text or "\r" in text or "#" in text


def pair(
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
    chains: list[str] = []
    for body in (before, after):
        for chain in _free(ast.parse("def body():\n" + _indented(body)), known, names):
            if chain not in chains:
                chains.append(chain)
    parameters = _parameters(chains)
    called = dict(zip(chains, parameters, strict=True))

    def formula(body: Sequence[str]) -> Formula:
        text = _renamed("\n".join(body), called)
        read = {n.id for n in ast.walk(ast.parse("def body():\n" + _indented([text]))) if isinstance(n, ast.Name)}
        needed = [imports[name] for name in sorted(read & imports.keys())]
        needed += [f"import {module}" for module in sorted(added) if module.partition(".")[0] in read - imports.keys()]
        return Formula(tuple(chains), tuple(parameters), line, text, tuple(dict.fromkeys(needed)))

    return formula(before), formula(after)


def _indented(body: Sequence[str]) -> str:
    lines = "\n".join(body).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(f" {line}" for line in lines)


def _is_callee(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents.get(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _chains(tree: ast.AST) -> list[tuple[ast.expr, list[str]]]:
    """The longest chains of attributes that are read as values, with the node of each."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found: list[tuple[ast.expr, list[str]]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        top: ast.expr = node
        while isinstance(parent := parents.get(top), ast.Attribute):
            if parent.attr in _OF_TENSORS | _ATTRIBUTES or (_is_callee(parent, parents) and node.id != "self"):
                break
            if _is_callee(parent, parents) and isinstance(top, ast.Attribute) and node.id == "self":
                break  # a method of what the attribute holds: self.weight.exp()
            top = parent
        names = dotted(top)
        if names is not None:
            found.append((top, names))
    return found


def _free(tree: ast.Module, known: Iterable[str], given: frozenset[str] | None) -> list[str]:
    """What a body reads and does not assign itself; ``known`` are the names that need not be given."""
    outside = {*known}
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    (body,) = tree.body
    stored: dict[str, int] = {}
    walrus: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and _owner(node, parents) is body:
            stored[node.id] = min(stored.get(node.id, node.lineno), node.lineno)
        if isinstance(node, ast.NamedExpr):
            walrus.add(node.target.id)
    stored |= {n.name: 0 for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    free: list[tuple[tuple[int, int], str]] = []
    for node, names in _chains(tree):
        name = names[0]
        if _is_bound_inside(node, name, parents, body):
            continue
        if given is not None and _owner(node, parents) is body:
            is_free = name in given
        elif name in outside:
            is_free = False
        else:
            # on the very line of its first assignment it is what it was before, but where a walrus made it
            is_free = name not in stored or (stored[name] >= node.lineno and name not in walrus)
        if is_free:
            free.append(((node.lineno, node.col_offset), ".".join(names)))
    return [chain for _, chain in sorted(free)]


_OWN_SCOPE: Final = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _owner(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST | None:
    """The function that a name is of."""
    while (parent := parents.get(node)) is not None:
        if isinstance(parent, (ast.FunctionDef, ast.Lambda)):
            return parent
        node = parent
    return None


def _is_bound_inside(node: ast.AST, name: str, parents: dict[ast.AST, ast.AST], body: ast.AST) -> bool:
    """Whether a name is a parameter or a variable of a function or comprehension inside the body."""
    while (parent := parents.get(node)) is not None and parent is not body:
        if isinstance(parent, _OWN_SCOPE):
            for inner in ast.walk(parent):
                if isinstance(inner, ast.arg) and inner.arg == name:
                    return True
                if isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Store):
                    return True
        node = parent
    return False


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


def _renamed(body: str, names: dict[str, str]) -> str:
    """A body with its inputs called as the parameters are."""
    head = "def body():\n"
    lines = body.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    text = head + "\n".join(f" {line}" for line in lines)
    place = Place(text)
    assert place.tree is not None
    edits = [
        (*place.span(node), names[chain])
        for node, parts in _chains(place.tree)
        if (chain := ".".join(parts)) in names
        and names[chain] != chain
        and not _is_bound_inside(node, parts[0], place.parents, place.tree.body[0])
    ]
    changed = replaced(text, edits)[len(head) :]
    return "\n".join(line[1:] for line in changed.split("\n"))
