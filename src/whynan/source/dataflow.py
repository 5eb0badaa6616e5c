"""Reaching definitions of names, and names that may share memory."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whynan.ops.signatures import FRESH
from whynan.source.calls import operator_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from whynan.source.text import Function, Place


# -- Which names may share memory, and which calls write into what a name holds ----------------------------------------


def root_of(node: ast.AST) -> ast.Name | None:
    """The name that a chain of attributes, subscripts and methods begins with."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case _:
                return None
    return node


def mutated_name(call: ast.Call) -> ast.Name | None:
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
            return None if is_temporary(receiver) else root_of(receiver)
    return None


def is_temporary(node: ast.expr) -> bool:
    """Whether an expression is a method's own result, or what that was written into: no name holds it."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=name)):
            return name in FRESH or (name.endswith("_") and not name.endswith("__") and is_temporary(inner))
        case _:
            return False


def alias_groups(place: Place, function: Function | ast.Module) -> dict[str, set[str]]:
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
        names |= shared_memory_names(place, value)
        merged = set(names)
        for name in names:
            merged |= groups.get(name, set())
        for name in merged:
            groups[name] = merged
    return groups


def shared_memory_names(place: Place, value: ast.AST) -> set[str]:
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
            if in_place and is_temporary(value):
                return set()
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return {name for part in parts for name in shared_memory_names(place, part)}
        case _:
            pass
    return {n.id for n in ast.walk(value) if isinstance(n, ast.Name) and n.id not in place.imports}


# -- Which assignments may have made the value of each name, where it is read ------------------------------------------


@dataclass(frozen=True, eq=False)
class Definition:
    """One place where a name gets a value, or where the value that it has is written into.

    ``value`` is the expression of that value, where it is one; of what is ``written`` it is the call or the augmented
    assignment that writes.
    """

    name: str
    node: ast.AST | None
    value: ast.expr | ast.AugAssign | None = None
    written: bool = False


Defined = frozenset[Definition]
State = dict[str, Defined]


@dataclass
class Reaching:
    """The definitions that reach each name of a function: at each load, and before each statement."""

    place: Place
    function: Function | ast.Module
    at: dict[ast.AST, Defined] = field(default_factory=dict[ast.AST, Defined])
    before: dict[ast.stmt, State] = field(default_factory=dict[ast.stmt, State])
    uncertain: set[str] = field(default_factory=set[str])
    late: dict[ast.AST, str] = field(default_factory=dict[ast.AST, str])

    def __post_init__(self) -> None:
        self._outside: dict[str, Definition] = {}
        self._made: dict[tuple[ast.AST, str], Definition] = {}
        self._breaks: list[list[State]] = []
        self._related = alias_groups(self.place, self.function)
        body = self.function.body
        state: State = {}
        if not isinstance(self.function, ast.Module):
            given = self.function.args
            for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
                if argument is not None:
                    self._set(state, argument.arg, argument)
        for node in ast.walk(self.function):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                self.uncertain.update(node.names)
        self._block(body, state)
        everything: dict[str, set[Definition]] = {}
        for definition in self._made.values():
            everything.setdefault(definition.name, set()).add(definition)
        for node, name in self.late.items():
            self.at[node] = frozenset(everything.get(name) or {self._outer_definition(name)})

    def definitions_at(self, node: ast.AST) -> Defined:
        """The definitions that may have made the value of a name there."""
        return self.at.get(node, frozenset())

    def single_definition(self, node: ast.AST) -> Definition | None:
        """The one definition in this function that made the value of a name there."""
        found = self.definitions_at(node)
        if len(found) != 1 or (isinstance(node, ast.Name) and node.id in self.uncertain):
            return None
        (one,) = found
        return one

    def is_own(self, node: ast.Name) -> bool:
        """Whether the value of a name there was made in this function and no other name or object can hold it."""
        if self._related.get(node.id, {node.id}) != {node.id} or node.id in self.uncertain or node in self.late:
            return False
        if not all(self._is_made_here(d) for d in self.definitions_at(node)):
            return False
        loads = [n for n in self.at if isinstance(n, ast.Name) and n.id == node.id and n is not node]
        return not any(self._escapes(load) for load in loads)

    def _is_made_here(self, definition: Definition) -> bool:
        value = definition.value
        if definition.written:
            return value is not None
        return value is not None and not shared_memory_names(self.place, value)

    def _escapes(self, load: ast.AST) -> bool:
        """Whether something else gets hold of a name's value where it is read."""
        parent = self.place.parents[load]
        match parent:
            case ast.Call():
                return operator_of(self.place, parent)[0] is None
            case ast.List() | ast.Tuple() | ast.Dict() | ast.Set() | ast.Yield() | ast.keyword():
                return not isinstance(self.place.parents.get(parent), ast.Return)
            case _:
                return False

    @functools.cached_property
    def _readers(self) -> dict[ast.AST, list[ast.Name]]:
        found: dict[ast.AST, list[ast.Name]] = {}
        for node in self.at:
            definition = self.single_definition(node) if isinstance(node, ast.Name) else None
            if isinstance(node, ast.Name) and definition is not None and definition.value is not None:
                found.setdefault(definition.value, []).append(node)
        for nodes in found.values():
            nodes.sort(key=lambda node: (node.lineno, node.col_offset))
        return found

    def readers_of(self, value: ast.AST) -> list[ast.Name]:
        """Where the name that an expression is the value of is read, and can be nothing else; in their order."""
        return self._readers.get(value, [])

    def definitions(self) -> list[Definition]:
        """Every definition in the function."""
        return list(self._made.values())

    def definitions_before(self, statement: ast.stmt, name: str) -> Defined:
        """The definitions of a name that reach a statement."""
        return self.before.get(statement, {}).get(name) or frozenset({self._outer_definition(name)})

    def _outer_definition(self, name: str) -> Definition:
        return self._outside.setdefault(name, Definition(name, None))

    def _set(
        self,
        state: State,
        name: str,
        node: ast.AST,
        value: ast.expr | ast.AugAssign | None = None,
        *,
        written: bool = False,
    ) -> None:
        made = self._made.setdefault((node, name), Definition(name, node, value, written))
        state[name] = frozenset({made})

    def _write(self, state: State, name: str, node: ast.expr | ast.AugAssign, *, known: bool) -> None:
        """A value is written into: of the name, and of whatever may share its memory."""
        for other in self._related.get(name, set()) - {name}:
            self._set(state, other, node, written=True)
        self._set(state, name, node, node if known else None, written=True)

    def _load(self, state: State, node: ast.Name) -> None:
        found = state.get(node.id) or frozenset({self._outer_definition(node.id)})
        self.at[node] = self.at.get(node, frozenset()) | found

    def _merge_states(self, states: Sequence[State]) -> State:
        found: State = {}
        for name in {name for state in states for name in state}:
            # on a way on which it is not set it is what it was outside, or nothing
            given = [state.get(name) or frozenset({self._outer_definition(name)}) for state in states]
            found[name] = frozenset[Definition]().union(*given)
        return found

    # -- statements

    def _block(self, body: Sequence[ast.stmt], state: State) -> bool:
        """Go through statements; whether their end is reached."""
        return all(self._statement(statement, state) for statement in body)

    def _statement(self, node: ast.stmt, state: State) -> bool:
        known = self.before.get(node)
        self.before[node] = dict(state) if known is None else self._merge_states([known, state])
        match node:
            case ast.If():
                self._read(node.test, state)
                return self._branches(state, [node.body, node.orelse])
            case ast.For() | ast.AsyncFor():
                self._read(node.iter, state)
                return self._loop(node, state)
            case ast.While():
                return self._loop(node, state)
            case ast.Try():
                return self._try_block(node, state)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self._read(item.context_expr, state)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, None, state)
                return self._block(node.body, state)
            case ast.Match():
                self._read(node.subject, state)
                for case in node.cases:
                    for inner in ast.walk(case.pattern):
                        name = getattr(inner, "name", None) or getattr(inner, "rest", None)
                        if isinstance(name, str):
                            self._set(state, name, inner)
                return self._branches(state, [*(case.body for case in node.cases), []])
            case ast.Return() | ast.Raise():
                for child in ast.iter_child_nodes(node):
                    self._read(child, state)
                return False
            case ast.Break() | ast.Continue():
                if self._breaks:
                    self._breaks[-1].append(dict(state))
                return False
            case _:
                self._simple(node, state)
                return True

    def _simple(self, node: ast.stmt, state: State) -> None:
        match node:
            case ast.Assign():
                self._read(node.value, state)
                for target in node.targets:
                    self._bind(target, node.value, state)
            case ast.AnnAssign(value=value) if value is not None:
                self._read(value, state)
                self._bind(node.target, value, state)
            case ast.AugAssign(target=target):
                self._read(node.value, state)
                if isinstance(target, ast.Name):
                    self._load(state, target)
                    self._write(state, target.id, node, known=True)
                else:
                    self._bind(target, None, state)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._captured(node)
                self._set(state, node.name, node)
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    self._set(state, alias.asname or alias.name.partition(".")[0], node)
            case ast.Delete():
                for target in node.targets:
                    self._bind(target, None, state)
            case _:
                for child in ast.iter_child_nodes(node):
                    self._read(child, state)

    def _branches(self, state: State, bodies: Iterable[Sequence[ast.stmt]]) -> bool:
        ends: list[State] = []
        for body in bodies:
            own = dict(state)
            if self._block(body, own):
                ends.append(own)
        if ends:
            state.clear()
            state.update(self._merge_states(ends))
        return bool(ends)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, state: State) -> bool:
        left: list[State] = []
        for _ in range(3):  # a definition needs one turn to reach the loop's head, and another to reach its own reader
            self._breaks.append([])
            own = dict(state)
            if isinstance(node, ast.While):
                self._read(node.test, own)
            else:
                self._bind(node.target, None, own)
            ended = self._block(node.body, own)
            left = self._breaks.pop()
            joined = self._merge_states([state, *([own] if ended else []), *left])
            state.clear()
            state.update(joined)
        self._block(node.orelse, state)
        return True

    def _try_block(self, node: ast.Try, state: State) -> bool:
        states = [dict(state)]
        own = dict(state)
        ended = True
        for statement in node.body:
            ended = self._statement(statement, own)
            states.append(dict(own))
            if not ended:
                break
        entered = self._merge_states(states)
        ends: list[State] = []
        if ended and self._block(node.orelse, own):
            ends.append(own)
        for handler in node.handlers:
            caught = dict(entered)
            if handler.name:
                self._set(caught, handler.name, handler)
            if self._block(handler.body, caught):
                ends.append(caught)
        state.clear()
        state.update(self._merge_states(ends or [entered]))
        return self._block(node.finalbody, state) and bool(ends)

    # -- expressions

    def _bind(self, target: ast.expr, value: ast.expr | None, state: State) -> None:
        match target:
            case ast.Name():
                self._set(state, target.id, target, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
                whole = len(values) == len(targets) and not any(isinstance(v, ast.Starred) for v in [*values, *targets])
                for i, inner in enumerate(targets):
                    self._bind(inner, values[i] if whole else None, state)
            case ast.Starred():
                self._bind(target.value, None, state)
            case ast.Subscript() | ast.Attribute():
                self._read(target.value, state)
                if isinstance(target, ast.Subscript):
                    self._read(target.slice, state)
                root = root_of(target)
                if root is not None:
                    self._write(state, root.id, target, known=False)
            case _:
                pass

    def _read(self, node: ast.AST, state: State) -> None:
        match node:
            case ast.Name(ctx=ast.Load()):
                self._load(state, node)
            case ast.NamedExpr():
                self._read(node.value, state)
                self._set(state, node.target.id, node.target, node.value)
            case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._captured(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._comprehension(node, state)
            case ast.IfExp():
                self._read(node.test, state)
                ends: list[State] = []
                for branch in (node.body, node.orelse):
                    own = dict(state)
                    self._read(branch, own)
                    ends.append(own)
                state.update(self._merge_states(ends))
            case ast.Call():
                for child in ast.iter_child_nodes(node):
                    self._read(child, state)
                receiver = mutated_name(node)
                if receiver is not None:
                    self._write(state, receiver.id, node, known=receiver is getattr(node.func, "value", None))
            case _:
                for child in ast.iter_child_nodes(node):
                    self._read(child, state)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, state: State) -> None:
        own = dict(state)
        for generator in node.generators:
            self._read(generator.iter, own)
            self._bind(generator.target, None, own)
            for condition in generator.ifs:
                self._read(condition, own)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self._read(part, own)

    def _captured(self, node: ast.AST) -> None:
        """What is executed later reads whatever the name then is."""
        own = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
        own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                if inner.id in own:
                    self.at[inner] = frozenset({self._made.setdefault((node, inner.id), Definition(inner.id, node))})
                else:
                    self.late[inner] = inner.id


def reaching_in(place: Place, function: Function | ast.Module) -> Reaching:
    """The definitions that reach each name of a function, which many readers of its expressions ask for."""
    known = place.analyses.get(function)
    if not isinstance(known, Reaching):
        known = place.analyses[function] = Reaching(place, function)
    return known
