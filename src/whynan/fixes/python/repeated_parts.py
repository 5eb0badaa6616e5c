"""What a replacement has more than once: parts that get a name, so that each is written and computed once."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

Lets = dict[str, ast.expr]
"""The parts by the names that stand for them, in the replacement and in one another."""
_UNNAMED: Final = "part"
_LIMITS: Final = "finfo"
"""What is called so is as short as a name."""


def extract_repeated_parts(
    tree: ast.expr, names: Sequence[tuple[str, ast.expr]], *, every: bool = True
) -> tuple[ast.expr, Lets]:
    """An expression with names for the parts of it that occur more than once, the largest first; and these parts.

    ``names`` says what some of them are called; with ``every`` one that occurs once gets its name too. Another part is
    what calls an operator; names, numbers and the limits of a dtype may be repeated.
    """
    called = {ast.dump(part): name for name, part in names}
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    lets: Lets = {}
    while (part := _largest([tree, *lets.values()], lets, called.keys(), every=every)) is not None:
        dump = ast.dump(part)
        name = _free(called.get(dump, _UNNAMED), taken)
        taken.add(name)
        renamed = _PartReplacer(dump, ast.Name(name, ast.Load())).apply
        tree = renamed(tree)
        lets = {known: renamed(value) for known, value in lets.items()}
        lets[name] = part
    return tree, lets


def with_constants(tree: ast.expr, constants: Mapping[str, ast.expr]) -> ast.expr:
    """An expression some variables of which are known: what differs in them alone may be the same."""
    for name, value in constants.items():
        tree = _PartReplacer(ast.dump(ast.Name(name, ast.Load())), value).apply(tree)
    return _MaximumRemover().visit(tree)


def names_of(trees: Iterable[ast.expr], lets: Lets) -> Counter[str]:
    """How often expressions read each variable, with the parts that they name; each of these is read once."""
    waiting, seen = list(trees), set[str]()
    found: Counter[str] = Counter()
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Name):
                found[node.id] += 1
                if node.id in lets and node.id not in seen:
                    seen.add(node.id)
                    waiting.append(lets[node.id])
    return found


def _largest(trees: Sequence[ast.expr], lets: Lets, called: Collection[str], *, every: bool) -> ast.expr | None:
    """The largest part without a name that stands in several places, or, with ``every``, is called something."""
    found: dict[str, ast.expr] = {}
    counts: Counter[str] = Counter()
    for tree in trees:
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Call, ast.BinOp, ast.Compare, ast.UnaryOp)):
                continue
            dump = ast.dump(node)
            if dump in called or _is_worth_naming(node):
                counts[dump] += 1
                found[dump] = node
    for value in lets.values():
        counts.pop(ast.dump(value), None)
    repeated = [dump for dump, count in counts.items() if count > 1 or (every and dump in called)]
    return found[max(repeated, key=len)] if repeated else None


def _is_worth_naming(node: ast.expr) -> bool:
    """Whether something is computed in it that is worth a name; of ``norm(x) == 0`` that is the norm."""
    if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Constant):
        return False
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
    return any(not (isinstance(call.func, ast.Name) and call.func.id == _LIMITS) for call in calls)


def _free(name: str, taken: set[str]) -> str:
    return next(c for c in (name, *(f"{name}_{i}" for i in range(2, 100))) if c not in taken)


class _PartReplacer(ast.NodeTransformer):
    """Puts a name, or another expression, in the place of a part, wherever it stands."""

    def __init__(self, dump: str, new: ast.expr) -> None:
        self._dump = dump
        self._new = new

    def apply(self, tree: ast.expr) -> ast.expr:
        """An expression with the other in it."""
        found = self.visit(tree)
        return found if isinstance(found, ast.expr) else tree

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or what takes its place."""
        if isinstance(node, ast.expr) and ast.dump(node) == self._dump:
            return self._new
        return self.generic_visit(node)


class _MaximumRemover(ast.NodeTransformer):
    """Takes away the maximum of a row that is of one element already."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="amax"), args=[inner], keywords=named) if _is_one(inner, named):
                return inner
            case _:
                return node


def _is_one(tree: ast.expr, named: Sequence[ast.keyword]) -> bool:
    """Whether an expression has one element in each row, whose dimension stays as it is asked to."""
    while isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in ("detach", "clamp"):
        tree = tree.args[0]
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "amax"):
        return False
    kept, asked = ({k.arg: ast.dump(k.value) for k in given} for given in (tree.keywords, named))
    return kept == asked and kept.get("keepdim") == ast.dump(ast.Constant(value=True))
