"""The continuation of a frame: the rest of a function after a call, as code that runs on its own."""

from __future__ import annotations
import __future__

import ast
import copy
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from whynan.replay.continuation.liveness import Liveness, Names, Scope, mangled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from whynan.source.syntax import Span


# -- What a function goes on to do after a call in it, as code that can be run on its own ------------------------------


Structure = str | tuple["Structure", ...]
"""The target of a loop: a name, or what unpacks into several."""

_Loop = ast.For | ast.While
_OTHER: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)  # no declaration of this scope in it
_ITEMS: Final = "_whynan_items_"
_FIRST: Final = "_whynan_first_"


class Owner(NamedTuple):
    """The function or module that a code object was compiled from, and the class that it stands in (for ``__x``)."""

    code: CodeType
    node: ast.FunctionDef | ast.Module
    cls: str | None


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that a tail begins inside of.

    ``targets`` are the names that a ``for`` stores, in order, ``structure`` how it unpacks an item into them: None
    where a part is no name, or a name stands twice, so that an item cannot be told from the names' values. ``items``
    is the name over which the tail runs the further iterations of a ``for`` (None for a ``while``, whose test it
    evaluates again); ``iter`` is the iterable's expression, ``shape`` what it looks like.
    """

    kind: Literal["for", "while"]
    targets: tuple[str, ...]
    structure: Structure | None
    iter: ast.expr | None
    shape: Literal["plain", "enumerate", "other call"] | None
    items: str | None
    body: tuple[ast.stmt, ...]
    cls: str | None
    _stored: dict[tuple[int, int], Names] = field(default_factory=lambda: {}, repr=False, compare=False)
    """By position, what was found of it."""

    def item(self, values: Mapping[str, object]) -> object:
        """The item that was unpacked into `values`: ``(1, (x, y))`` for ``i, (a, b)``.

        Raises: ValueError without a structure, KeyError for a name without a value.
        """
        if self.structure is None:
            raise ValueError("the item of this loop cannot be told from the values of its names")
        return _item(self.structure, values)

    def stored_before(self, line: int, column: int) -> Names:
        """The names that may be stored in one iteration before a position in the body (line from 1, bytes from 0).

        What stands in an inner loop around the position counts whole, what stands in the statement at it does not.
        """
        at = line, column
        if at not in self._stored:
            self._stored[at] = frozenset(_stored_before(self.body, at, self.cls))
        return self._stored[at]


@dataclass(frozen=True, slots=True)
class Tail:
    """What runs after (or from) a statement to the end of its function or module.

    ``loops`` are those around it, innermost first. ``live`` are the names that may be read before they are stored
    (globals and builtins too), ``stored`` those that may be stored, ``by_statement`` those that the statement at the
    position stores; without the names of `Loop.items`, and mangled as in a frame's ``f_locals``. ``local_names`` are
    the locals of the whole function, ``global_names`` those that it declares ``global``.
    """

    owner: Owner
    statements: tuple[ast.stmt, ...]
    loops: tuple[Loop, ...]
    live: Names
    stored: Names
    by_statement: Names
    local_names: Names
    global_names: Names


def owner_of(tree: ast.Module, code: CodeType) -> Owner | None:
    """What a code object of the file was compiled from.

    None for what has no tail: lambdas, comprehensions, class bodies, generators, coroutines, and what is not found.
    """
    if code.co_name == "<module>":
        return Owner(code, tree, None)
    found = list(_owners(tree, code, "", None))
    if len(found) != 1 or _scope(found[0]).yields:
        return None
    return found[0]


def _owners(node: ast.AST, code: CodeType, prefix: str, cls: str | None) -> Iterator[Owner]:
    """Every function that a code object may be of, in what has a name behind `prefix`."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield from _owners(child, code, f"{prefix}{name}.", name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                found = prefix + name == code.co_qualname and first == code.co_firstlineno
                if found and isinstance(child, ast.FunctionDef):
                    yield Owner(code, child, cls)
                yield from _owners(child, code, f"{prefix}{name}.<locals>.", cls)
            case _:
                yield from _owners(child, code, prefix, cls)


def _scope(owner: Owner) -> Scope:
    scope = Scope(owner.cls)
    return scope.visit(*owner.node.body) if isinstance(owner.node, ast.Module) else scope.function(owner.node)


def first_parameter(owner: Owner) -> Names:
    """What ``super()`` reads without naming it."""
    return frozenset(owner.code.co_varnames[: min(owner.code.co_argcount, 1)])


def tail_after(owner: Owner, span: Span) -> Tail | None:
    """What runs after the simple statement that contains a position.

    An enclosing ``if`` or ``match`` is gone, a ``with`` is entered again unless it is around a loop, a ``try`` keeps
    its handlers and its ``finally``. Of a loop comes the rest of the iteration, then further ones. After a ``return``
    only what leaving passes is left, and the value is None. Nodes are copies with the positions of the file.

    None where the position is in no simple statement of this scope (the head of a compound one, a nested function),
    in a handler or a ``finally``, whose exception is gone, or in a ``raise``.
    """
    return _tail(owner, span, including=False)


def tail_from(owner: Owner, span: Span) -> Tail | None:
    """What runs from the simple statement that contains a position, this statement included; else as `tail_after`."""
    return _tail(owner, span, including=True)


def tail_inside(owner: Owner, span: Span) -> Tail | None:
    """What runs from the first statement in the ``with`` at whose head a position is; else as `tail_after`."""
    return _tail(owner, span, including=False, inside=True)


def _tail(owner: Owner, span: Span, *, including: bool, inside: bool = False) -> Tail | None:
    cutter = _Cutter(owner.cls, span, including, inside)
    statements = cutter.cut(owner.node.body)
    if statements is None or cutter.statement is None:
        return None
    copied = [_Undeclared().visit(statement) for statement in copy.deepcopy(statements)]
    scope = _scope(owner)
    module = isinstance(owner.node, ast.Module)
    live = Liveness(owner.cls, annotations=module).block(statements, frozenset())
    ours = {f"{prefix}{k}" for prefix in (_ITEMS, _FIRST) for k in range(len(cutter.loops))}
    return Tail(
        owner=owner,
        statements=tuple(copied),
        loops=tuple(cutter.loops),
        live=(live | first_parameter(owner) if "super" in live else live) - ours,
        # here a declaration is one of the function, and what it declares is stored all the same
        stored=Scope(owner.cls).visit(*copied).all_stored - ours,
        by_statement=Scope(owner.cls).visit(cutter.statement).all_stored,
        local_names=frozenset(() if module else scope.own),
        global_names=frozenset(scope.globals),
    )


class EnteredAgain(ast.With):
    """A ``with`` that a tail begins inside of: what entering it does has been done where the tail begins."""


class _Cutter:
    """Cuts a block behind the statement at a span, and counts the loops around it."""

    def __init__(self, cls: str | None, span: Span, including: bool, inside: bool) -> None:
        self.cls = cls
        self.inside = inside
        self.start = (span.line, span.column)
        self.end = (span.end_line, span.end_column)
        self.including = including
        self.statement: ast.stmt | None = None
        self.loops: list[Loop] = []

    def cut(self, block: list[ast.stmt]) -> list[ast.stmt] | None:
        """What runs of a block, from the position on; None where it is not in the block, or refused."""
        for index, statement in enumerate(block):
            if _start(statement) <= self.start and self.end <= _end(statement):
                remaining = self._entered(statement)
                return None if remaining is None else remaining + block[index + 1 :]
        return None

    def _first(self, *blocks: list[ast.stmt]) -> list[ast.stmt] | None:
        return next((cut for cut in map(self.cut, blocks) if cut is not None), None)

    def _entered(self, node: ast.stmt) -> list[ast.stmt] | None:
        match node:
            case ast.If(body=body, orelse=orelse):
                return self._first(body, orelse)
            case ast.Match(cases=cases):
                return self._first(*(case.body for case in cases))
            case ast.With(items=items, body=body) if self.inside and self._enters(node, body[0]):
                self.statement = ast.With(items, [])
                return body
            case ast.With(items=items, body=body):
                inner = self.cut(body)
                if inner is None or self.loops:
                    # around a loop: it is still entered where the loop goes on
                    return inner
                return [ast.copy_location(EnteredAgain(items, _filled(inner, node)), node)]
            case ast.Try() | ast.TryStar():
                return self._tried(node)
            case ast.For() | ast.While():
                inner = self.cut(node.body)
                return self.cut(node.orelse) if inner is None else [self._looped(node, inner)]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.AsyncFor() | ast.AsyncWith():
                return None
            case _:
                return self._cut_simple(node)

    def _enters(self, node: ast.stmt, first: ast.stmt) -> bool:
        """Whether the position is that of entering a ``with``: its head, or (Python 3.11) all of it."""
        return self.end <= _start(first) or (self.start, self.end) == (_start(node), _end(node))

    def _cut_simple(self, node: ast.stmt) -> list[ast.stmt] | None:
        self.statement = node
        if self.including:
            return [node]
        match node:
            case ast.Return():
                return [ast.copy_location(ast.Return(), node)]
            case _:
                return None if isinstance(node, ast.Raise) else []

    def _tried(self, node: ast.Try | ast.TryStar) -> list[ast.stmt] | None:
        inner = self.cut(node.body)
        if inner is not None:
            kind = type(node)
            tried = kind(_filled(inner, node), node.handlers, node.orelse, node.finalbody)
            return [ast.copy_location(tried, node)]
        inner = self.cut(node.orelse)
        if inner is None or not node.finalbody:
            return inner
        return [ast.copy_location(ast.Try(_filled(inner, node), [], [], node.finalbody), node)]

    def _looped(self, node: _Loop, inner: list[ast.stmt]) -> ast.stmt:
        """The rest of an iteration in a loop of one pass, whose ``else`` is the loop itself.

        So ``continue`` goes on with the loop, and ``break`` leaves it and its own ``else``.
        """
        k = len(self.loops)
        loop = _loop(node, k, self.cls)
        self.loops.append(loop)
        further = node
        head = node.test if isinstance(node, ast.While) else node.iter
        if isinstance(node, ast.For):
            items = ast.copy_location(ast.Name(f"{_ITEMS}{k}", ast.Load()), head)
            further = ast.copy_location(ast.For(node.target, items, node.body, node.orelse), node)
        once = ast.Tuple([ast.Constant(True)], ast.Load())
        first = ast.For(ast.Name(f"{_FIRST}{k}", ast.Store()), once, _filled(inner, node), [further])
        for synthetic in (first, first.target, once, once.elts[0]):
            ast.copy_location(synthetic, head)
        return first


def _start(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.stmt) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _filled(block: list[ast.stmt], node: ast.stmt) -> list[ast.stmt]:
    return block or [ast.copy_location(ast.Pass(), node)]


class _Undeclared(ast.NodeTransformer):
    """Takes the declarations out of a scope: those of the whole function come before its tail."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return ast.copy_location(ast.Pass(), node)
        return node if isinstance(node, _OTHER) else self.generic_visit(node)


def _loop(node: _Loop, k: int, cls: str | None) -> Loop:
    body = tuple(node.body)
    if isinstance(node, ast.While):
        return Loop("while", (), None, None, None, None, body, cls)
    match node.iter:
        case ast.Call(func=ast.Name(id="enumerate")):
            shape = "enumerate"
        case ast.Call():
            shape = "other call"
        case _:
            shape = "plain"
    names = [n for n in ast.walk(node.target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    targets = tuple(mangled(n.id, cls) for n in sorted(names, key=lambda n: (n.lineno, n.col_offset)))
    structure = _structure(node.target, cls) if len(set(targets)) == len(targets) else None
    return Loop("for", targets, structure, node.iter, shape, f"{_ITEMS}{k}", body, cls)


def _structure(target: ast.expr, cls: str | None) -> Structure | None:
    match target:
        case ast.Name(id=name):
            return mangled(name, cls)
        case ast.Tuple(elts=entries) | ast.List(elts=entries):
            parts = tuple(part for entry in entries if (part := _structure(entry, cls)) is not None)
            return parts if len(parts) == len(entries) else None
        case _:
            return None


def _item(structure: Structure, values: Mapping[str, object]) -> object:
    return values[structure] if isinstance(structure, str) else tuple(_item(part, values) for part in structure)


def _stored_before(block: Sequence[ast.stmt], position: tuple[int, int], cls: str | None) -> Iterator[str]:
    for statement in block:
        if _start(statement) > position:
            return
        inside = position < _end(statement)
        match statement:
            case ast.If(body=body, orelse=orelse) if inside:
                yield from Scope(cls).visit(statement.test).all_stored
                chosen = orelse if orelse and _start(orelse[0]) <= position else body
                yield from _stored_before(chosen, position, cls)
            case ast.With(items=items, body=body) if inside:
                yield from Scope(cls).visit(*items).all_stored
                yield from _stored_before(body, position, cls)
            case ast.Try(body=body) | ast.TryStar(body=body) if position < _end(body[-1]):
                yield from _stored_before(body, position, cls)
            case ast.For() | ast.While() | ast.Try() | ast.TryStar() | ast.Match():
                yield from Scope(cls).visit(statement).all_stored
            case _ if inside:
                walruses = [node for node in ast.walk(statement) if isinstance(node, ast.NamedExpr)]
                yield from Scope(cls).visit(*walruses).all_stored
            case _:
                yield from Scope(cls).visit(statement).all_stored


AS_THEN: Final = "_whynan_as_then"
"""The name that the code calls where it has entered a ``with`` again."""


def call_where_entered(statements: Sequence[ast.stmt]) -> tuple[ast.stmt, ...]:
    """Copies of statements that call `AS_THEN` in the innermost ``with`` that is entered again; positions stay."""
    copies = [copy.deepcopy(statement) for statement in statements]
    entered = [node for each in copies for node in ast.walk(each) if isinstance(node, EnteredAgain)]
    if entered:
        # an outer one is walked before it
        body = entered[-1].body
        body.insert(0, ast.Expr(ast.Call(ast.Name(AS_THEN, ast.Load()), [], [])))
        for made in ast.walk(body[0]):
            ast.copy_location(made, body[1])
    return tuple(copies)


# -- The code of what a function goes on to do, made from its syntax: what it was, on its own --------------------------


_FACTORY: Final = "_whynan_factory"
_FUTURE: Final = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


def compile_tail(tail: Tail, *, parameters: Collection[str] = (), free: Collection[str] = ()) -> CodeType:
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
        return _compile_module(statements, code)
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
    found = _compile_module([outer], code)
    for step in path:
        found = next(c for c in found.co_consts if isinstance(c, CodeType) and c.co_name == step)
    return _renamed(found, found.co_qualname, code.co_qualname)


def _compile_module(statements: list[ast.stmt], code: CodeType) -> CodeType:
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
