"""Two versions of a file as formulas of the smallest run of statements that holds all their differences."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.fixes.candidates import Declined
from whynan.fixes.python.formula import formula_pair, helpers_in
from whynan.fixes.python.imports import statements_of
from whynan.source.calls import function_of
from whynan.source.dataflow import mutated_name, reaching_in
from whynan.source.syntax import dotted
from whynan.source.text import Place, is_python

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.fixes.candidates import Formula
    from whynan.source.text import Function

_LEAVING: Final = (ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
_COMPUTING: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
_BLOCKS: Final = ("body", "orelse", "finalbody")


class _DeclinedError(Exception):
    """Why two versions cannot be compared."""


@dataclass
class _Version:
    """One version of the file, its function, and the statements of the region in it."""

    place: Place
    function: Function | ast.Module
    region: list[ast.stmt]

    def __post_init__(self) -> None:
        self.reaching = reaching_in(self.place, self.function)

    @property
    def before(self) -> list[ast.stmt]:
        """The statements before the region among which it stands, the nearest last."""
        return self._block[: self._block.index(self.region[0])]

    @property
    def after(self) -> list[ast.stmt]:
        """The statements behind it."""
        return self._block[self._block.index(self.region[-1]) + 1 :]

    @property
    def _block(self) -> list[ast.stmt]:
        parent = self.place.parents[self.region[0]]
        blocks: list[list[ast.stmt]] = [getattr(parent, name, []) for name in _BLOCKS]
        return next((b for b in blocks if self.region[0] in b), self.region)


def _following_statements(version: _Version, count: int) -> list[ast.stmt]:
    """So many statements behind the region, all of which only give names values, or return one."""
    found = version.after[:count]
    if len(found) < count or not all(isinstance(one, _COMPUTING) for one in found):
        raise _DeclinedError("what comes after it does more than compute")
    return found


def compare_versions(
    before: str, after: str, path: str, line: int, *, further: int = 0
) -> tuple[Formula, Formula] | Declined:
    """What two versions of a file compute, as two formulas of the same inputs.

    The formulas are of the smallest run of statements in one function that holds every difference and `line` (of the
    version before), and give what is read after it or returned. Declined with the reason where the versions differ in
    more than one function, or where what they compute leaves by another way.

    `further`: so many statements behind these are compared with them, which only compute; declined where there are not
    so many. What differs in between, as the exponentials of a softmax do less their greatest, may come to the same.
    """
    title = f"the change of {path}"
    try:
        return _compare_regions(before, after, line, further)
    except _DeclinedError as error:
        return Declined(title, str(error))


def _compare_regions(before: str, after: str, line: int, further: int) -> tuple[Formula, Formula]:
    old, new = Place(before), Place(after)
    for place, name in ((old, "before"), (new, "after")):
        if place.tree is None or not is_python(place.text):
            raise _DeclinedError(f"the file {name} the change does not parse")
    function = _function_at(old, line)
    other = _same_function(new, old.qualified_name(function))
    if other is None:
        raise _DeclinedError(f"{old.qualified_name(function)} is gone after the change")
    if _dump_outside(old, function) != _dump_outside(new, other):
        raise _DeclinedError(
            f"it changes more than {old.qualified_name(function) or 'the module'}, where the bad number was born"
        )
    first, second = _region(list(function.body), list(other.body), line)
    versions = _Version(old, function, first), _Version(new, other, second)
    for version in versions if further else ():
        version.region = [*version.region, *_following_statements(version, further)]
    versions = _extend_regions(*versions)
    first = versions[0].region
    outputs = _outputs(*versions)
    bodies = [_body(version, outputs) for version in versions]
    bodies = [[*helpers_in(v.place, body), *body] for v, body in zip(versions, bodies, strict=True)]
    outer = {name for version in versions for name in _free_names(version)}
    imports = statements_of(old) | statements_of(new)
    return formula_pair(bodies[0], bodies[1], first[0].lineno, imports, names=frozenset(outer))


def _function_at(place: Place, line: int) -> Function | ast.Module:
    found: Function | ast.Module | None = place.tree
    assert found is not None
    for node in place.parents:
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.body[0].lineno <= line <= (node.end_lineno or 0)
            and (isinstance(found, ast.Module) or node.lineno > found.lineno)
        ):
            found = node
    return found


def _same_function(place: Place, qualified: str | None) -> Function | ast.Module | None:
    if qualified is None:
        return place.tree
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return next((n for n in place.parents if isinstance(n, kinds) and place.qualified_name(n) == qualified), None)


def _dump_outside(place: Place, function: Function | ast.Module) -> str:
    """All of a file but the body of one function, and imports, which may be added."""
    own = [] if isinstance(function, ast.Module) else function.body
    skipped = {id(statement) for statement in own}

    def dumped(node: ast.AST) -> str:
        parts: list[str] = []
        for name, value in ast.iter_fields(node):
            values: list[object] = list(value) if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownArgumentType]
            kept = [v for v in values if id(v) not in skipped and not isinstance(v, (ast.Import, ast.ImportFrom))]
            parts.append(f"{name}={[dumped(v) if isinstance(v, ast.AST) else repr(v) for v in kept]}")
        return f"{type(node).__name__}({', '.join(parts)})"

    if isinstance(function, ast.Module):
        return ""
    assert place.tree is not None
    return dumped(place.tree)


def _region(before: list[ast.stmt], after: list[ast.stmt], line: int) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statements from the first that differs, or holds the line, to the last."""
    start = 0
    while start < min(len(before), len(after)) and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    holding = next((i for i, s in enumerate(before) if s.lineno <= line <= (s.end_lineno or s.lineno)), None)
    if start == len(before) == len(after):
        raise _DeclinedError("it changes nothing that is executed there")
    if holding is not None:
        start, end = min(start, holding), min(end, len(before) - 1 - holding)
    first, second = before[start : len(before) - end], after[start : len(after) - end]
    if not first:
        # only added: with the statement before which it stands, or the last
        if start < len(before):
            first, second = before[start : start + 1], after[start : len(after) - end + 1]
        else:
            first, second = before[start - 1 :], after[start - 1 :]
    if len(first) == len(second) == 1:
        inner = _inner_region(first[0], second[0], line)
        if inner is not None:
            return inner
    return first, second


def _extend_regions(old: _Version, new: _Version) -> tuple[_Version, _Version]:
    """Two versions with the statements before that relate what only one of them reads to what the other reads.

    Where ``p.log()`` becomes ``x.log_softmax(-1)``, ``p = x.softmax(-1)`` is part of what is compared: p and x do not
    vary by themselves.
    """
    while True:
        one, other = _free_names(old), _free_names(new)
        earlier = old.before
        if one == other or len(earlier) != len(new.before):
            return old, new
        start = _relating_statement(earlier, one | other, one ^ other)
        if start is None:
            return old, new
        old.region = [*earlier[start:], *old.region]
        new.region = [*new.before[start:], *new.region]


def _relating_statement(statements: Sequence[ast.stmt], read: set[str], alone: set[str]) -> int | None:
    """Where the nearest statement is that makes one of some names of others, some of which only one version reads."""
    for at in range(len(statements) - 1, -1, -1):
        stored = {*_assigned_names(statements[at : at + 1])}
        given = {n.id for n in ast.walk(statements[at]) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if stored & read and (stored | given) & alone:
            return at
    return None


def _same(first: ast.AST, second: ast.AST) -> bool:
    return ast.dump(first) == ast.dump(second)


def _inner_region(first: ast.stmt, second: ast.stmt, line: int) -> tuple[list[ast.stmt], list[ast.stmt]] | None:
    """The region inside one compound statement, where nothing else of it differs."""
    if type(first) is not type(second):
        return None
    differing: list[tuple[list[ast.stmt], list[ast.stmt]]] = []
    for name, value in ast.iter_fields(first):
        other = getattr(second, name)
        if name in _BLOCKS and isinstance(value, list):
            blocks: tuple[list[ast.stmt], list[ast.stmt]] = (list(value), list(other))  # pyright: ignore[reportUnknownArgumentType]
            if [ast.dump(s) for s in blocks[0]] != [ast.dump(s) for s in blocks[1]]:
                differing.append(blocks)
        elif _dumped(value) != _dumped(other):
            return None
    if len(differing) != 1 or not differing[0][0]:
        return None
    block = differing[0][0]
    if not block[0].lineno <= line <= (block[-1].end_lineno or block[-1].lineno):
        return None
    return _region(*differing[0], line)


def _dumped(value: object) -> str:
    if isinstance(value, list):
        return repr([_dumped(v) for v in value])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def _assigned_names(region: Sequence[ast.stmt]) -> list[str]:
    found: dict[str, None] = {}
    for statement in region:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = None
    return list(found)


def _mutated_names(region: Sequence[ast.stmt]) -> list[str]:
    """The names whose values the region writes into."""
    found: dict[str, None] = {}
    for statement in region:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and (root := mutated_name(node)) is not None:
                found[root.id] = None
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                names = dotted(node.value)
                if names is None or len(names) > 1:
                    raise _DeclinedError(f"it writes into {ast.unparse(node.value)}")
                found[names[0]] = None
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                raise _DeclinedError(f"it sets {ast.unparse(node)}")
    return list(found)


def _names_kept(region: Sequence[ast.stmt]) -> set[str]:
    """The names of a region whose values a call that stands alone hands on, as ``parts.append(x)`` does."""
    found: set[str] = set()
    for node in (node for statement in region for node in ast.walk(statement)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            given = (*node.value.args, *(keyword.value for keyword in node.value.keywords))
            found |= {n.id for each in given for n in ast.walk(each) if isinstance(n, ast.Name)}
    names = (n for statement in region for n in ast.walk(statement) if isinstance(n, ast.Name))
    stored = [name.id for name in names if isinstance(name.ctx, ast.Store)]
    again = next((name for name in found if stored.count(name) > 1), None)
    if again is not None:
        raise _DeclinedError(f"{again} is handed on, and given another value")
    return found


def _outputs(old: _Version, new: _Version) -> list[str]:
    """The names that the region gives a value that is read after it; none where it ends the function."""
    for version in (old, new):
        for statement in version.region:
            leaving = next((n for n in ast.walk(statement) if isinstance(n, _LEAVING)), None)
            if leaving is not None:
                raise _DeclinedError(f"the changed statements have {_statement_keyword(leaving)} in them")
    if any(isinstance(n, ast.Return) for v in (old, new) for s in v.region for n in ast.walk(s)):
        if all(v.region[-1] is v.function.body[-1] and _always_returns(v.region) for v in (old, new)):
            return []
        raise _DeclinedError("the changed statements return on some ways only")
    changed = dict.fromkeys(
        [
            *_assigned_names(old.region),
            *_mutated_names(old.region),
            *_assigned_names(new.region),
            *_mutated_names(new.region),
        ]
    )
    # another module can read no name that an edit makes up
    known = [name for name in changed if not isinstance(old.function, ast.Module) or name in old.place.names]
    kept = _names_kept(old.region) | _names_kept(new.region)
    outputs = [n for n in known if n in kept or _is_read_after(old, n) or _is_read_after(new, n)]
    both = {*_assigned_names(old.region), *_mutated_names(old.region)} & {
        *_assigned_names(new.region),
        *_mutated_names(new.region),
    }
    if not outputs:
        raise _DeclinedError("nothing that the changed statements compute is read after them")
    missing = next((name for name in outputs if name not in both), None)
    if missing is not None:
        raise _DeclinedError(f"{missing} is read afterwards, and only one version gives it a value")
    return outputs


def _statement_keyword(node: ast.AST) -> str:
    return {"YieldFrom": "yield", "Nonlocal": "nonlocal"}.get(type(node).__name__, type(node).__name__.lower())


def _always_returns(region: Sequence[ast.stmt]) -> bool:
    match region[-1]:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(body=body, orelse=orelse):
            return bool(orelse) and _always_returns(body) and _always_returns(orelse)
        case ast.With(body=body):
            return _always_returns(body)
        case _:
            return False


def _is_read_after(version: _Version, name: str) -> bool:
    """Whether a value that the region gives a name, or writes into it, reaches a reader outside."""
    inside = {node for statement in version.region for node in ast.walk(statement)}
    reaching = version.reaching
    readers = (n for n in reaching.at if isinstance(n, ast.Name) and n.id == name and n not in inside)
    if any(d.node in inside for node in readers for d in reaching.definitions_at(node)):
        return True
    return isinstance(version.function, ast.Module)


def _free_names(version: _Version) -> set[str]:
    """The names that the region reads as they were before it."""
    inside = {node for statement in version.region for node in ast.walk(statement)}
    reaching = version.reaching
    tree = version.place.tree
    functions = {n.name for n in (tree.body if tree is not None else []) if isinstance(n, ast.FunctionDef)}
    known = {*version.place.imports, *dir(builtins), *functions}
    found: set[str] = set()
    for node in inside:
        if not isinstance(node, ast.Name) or all(d.node in inside for d in reaching.definitions_at(node)):
            continue
        if node.id not in known or (node.id in version.place.assigned_names and node.id not in functions):
            found.add(node.id)
    _check_calls(version, inside, found)
    return found


def _check_calls(version: _Version, inside: set[ast.AST], outer: set[str]) -> None:
    """What is called is torch's, a method of a value, or plain Python."""
    for node in inside:
        if not isinstance(node, ast.Call) or function_of(version.place, node.func) is not None:
            continue
        names = dotted(node.func)
        if names is None:
            continue
        is_own = names[0] in ("self", "cls")
        if (len(names) == 1 and names[0] in outer) or (is_own and len(names) == 2):
            raise _DeclinedError(f"it calls {'.'.join(names)}, which is neither PyTorch's nor a function of the file")


class _OutOfPlace(ast.NodeTransformer):
    """Augmented assignments of names, as assignments."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.Assign([ast.Name(node.target.id, ast.Store())], value)


def _body(version: _Version, outputs: Sequence[str]) -> list[str]:
    outer = _free_names(version)
    lines = [f"{name} = {name}.clone()" for name in _mutated_names(version.region) if name in outer]
    for statement in version.region:
        fresh = ast.parse(ast.unparse(statement)) if not isinstance(statement, ast.Return) else None
        if fresh is None:
            lines.append(ast.unparse(statement))
        else:
            lines.append(ast.unparse(ast.fix_missing_locations(_OutOfPlace().visit(fresh))))
    if outputs:
        lines.append(f"return {outputs[0]}" if len(outputs) == 1 else f"return ({', '.join(outputs)})")
    return lines
