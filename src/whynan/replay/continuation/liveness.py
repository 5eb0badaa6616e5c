"""Live names: which names statements read and store, and which are live before them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

# -- Which names statements read and store, and which of them are live before them (Aho et al., section 9.2.5) ---------


Names = frozenset[str]
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

_NONE: Final[Names] = frozenset()


def mangled(name: str, cls: str | None) -> str:
    """A name as the compiler keeps it inside of class `cls`: ``__x`` is ``_C__x`` there."""
    if cls is None or not name.startswith("__") or name.endswith("__") or not cls.strip("_"):
        return name
    return f"_{cls.lstrip('_')}{name}"


def read_by(name: str, cls: str | None) -> Names:
    """The names that are read where one is: inside of a class, ``super`` goes by its ``__class__``."""
    return frozenset({name, "__class__"} if name == "super" and cls is not None else {mangled(name, cls)})


def _outer(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef) -> list[ast.expr]:
    """What the definition of a function or class evaluates at once, in the scope that it stands in."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
    arguments = node.args
    values = [*arguments.defaults, *(value for value in arguments.kw_defaults if value is not None)]
    if isinstance(node, ast.Lambda):
        return values
    annotations = [argument.annotation for argument in _arguments(arguments)] + [node.returns]
    return [*node.decorator_list, *values, *(annotation for annotation in annotations if annotation is not None)]


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*several, *(one for one in (arguments.vararg, arguments.kwarg) if one is not None)]


def _repeated(node: Comprehension) -> list[ast.AST]:
    """The parts of a comprehension that its own scope evaluates: all but the first iterable."""
    first, *others = node.generators
    values: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    return [first.target, *first.ifs, *others, *values]


@dataclass(eq=False)
class Scope:
    """The names of one scope, mangled as in class `cls`.

    ``stored`` are those that any form of binding stores (parameters too), ``annotated`` those that a bare annotation
    makes local, ``globals`` and ``nonlocals`` those that are declared so; ``yields`` says that it is a generator or
    coroutine.
    """

    cls: str | None
    kind: Literal["function", "class", "comprehension"] = "function"
    parent: Scope | None = None
    read: set[str] = field(default_factory=set[str])
    stored: set[str] = field(default_factory=set[str])
    annotated: set[str] = field(default_factory=set[str])
    globals: set[str] = field(default_factory=set[str])
    nonlocals: set[str] = field(default_factory=set[str])
    nested: list[Scope] = field(default_factory=list["Scope"])
    yields: bool = False

    @property
    def own(self) -> set[str]:
        """The names that belong to the scope itself."""
        return (self.stored | self.annotated) - self.globals - self.nonlocals

    @property
    def free(self) -> set[str]:
        """The names that the scope and those in it read and that may be another scope's."""
        read = self.read.union(*(scope.free for scope in self.nested))
        # a name of a class is no function's in it, and falls back to the outer scope where the class has not stored it
        return read if self.kind == "class" else read - self.own

    @property
    def escaping(self) -> set[str]:
        """The names of other scopes that the scope and those in it store."""
        inner = set[str]().union(*(scope.escaping for scope in self.nested)) - self.own
        return inner | (self.stored & (self.globals | self.nonlocals))

    @property
    def all_stored(self) -> Names:
        """Every name that the scope stores, and of its names those that the scopes in it store."""
        return frozenset(self.stored.union(*(scope.escaping for scope in self.nested)))

    def visit(self, *nodes: ast.AST) -> Scope:
        """Take in what the nodes read and store."""
        for node in nodes:
            self._visit(node)
        return self

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Scope:
        """Take in the parameters and the body of a function whose scope this is."""
        for argument in _arguments(node.args):
            self._store(argument.arg)
        return self.visit(*(node.body if isinstance(node.body, list) else [node.body]))

    def _store(self, name: str | None) -> None:
        if name is not None and name != "*":
            self.stored.add(mangled(name, self.cls))

    def _child(self, kind: Literal["function", "class", "comprehension"], cls: str | None) -> Scope:
        self.nested.append(Scope(cls, kind, self))
        return self.nested[-1]

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                if not isinstance(node, ast.Lambda):
                    self._store(node.name)
                self.visit(*_outer(node))
                self._child("function", self.cls).function(node)
            case ast.ClassDef():
                self._store(node.name)
                self.visit(*_outer(node))
                self._child("class", node.name).visit(*node.body)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._visit(node.generators[0].iter)
                self._child("comprehension", self.cls).visit(*_repeated(node))
            case ast.NamedExpr(target=target, value=value):
                scope = self
                while scope.kind == "comprehension" and scope.parent is not None:
                    scope = scope.parent
                scope._store(target.id)
                self._visit(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=None):
                self.annotated.add(mangled(name, self.cls))
                self._visit(node.annotation)
            case ast.Global(names=names):
                self.globals.update(mangled(name, self.cls) for name in names)
            case ast.Nonlocal(names=names):
                self.nonlocals.update(mangled(name, self.cls) for name in names)
            case _:
                self._name(node)
                self.visit(*ast.iter_child_nodes(node))

    def _name(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name, ctx=context):
                if not isinstance(context, ast.Store):
                    self.read |= read_by(name, self.cls)
                if not isinstance(context, ast.Load):
                    self._store(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                self.read.add(mangled(name, self.cls))
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                self._store(name)
            case ast.MatchMapping(rest=name):
                self._store(name)
            case ast.alias(name=name, asname=other):
                self._store(other or name.partition(".")[0])
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                self.yields = True
            case _:
                pass


class Exits(NamedTuple):
    """The names that are live where control goes that leaves a block before its end."""

    breaks: Names = _NONE
    continues: Names = _NONE
    returns: Names = _NONE
    raises: Names = _NONE

    def through(self, names: Names) -> Exits:
        """The same where every way out passes a ``finally`` before which `names` are live."""
        return Exits(names, names, names, names)


_END: Final = Exits()


class Liveness(NamedTuple):
    """Backward liveness over the statements of one scope; names are mangled as in class `cls`.

    A name is live before statements where some way through them reads it before it stores it. Loops are solved to
    their fixed point. It errs to the side of live: a nested function reads when it is defined, a ``try`` may fail
    before its first statement. A context manager is taken not to swallow exceptions, ``suppress`` excepted.
    `annotations` says that those of variables are evaluated, as they are in a module and a class.
    """

    cls: str | None = None
    annotations: bool = False

    def block(self, statements: Sequence[ast.stmt], after: Names, exits: Exits = _END) -> Names:
        """The names live before a block after which those of `after` are."""
        for statement in reversed(statements):
            after = self.statement(statement, after, exits)
        return after

    def statement(self, node: ast.stmt, after: Names, exits: Exits) -> Names:
        """The names live before one statement."""
        match node:
            case ast.Return(value=value):
                return self._optional(value, exits.returns)
            case ast.Raise(exc=raised, cause=cause):
                return self._optional(raised, self._optional(cause, exits.raises))
            case ast.Break():
                return exits.breaks
            case ast.Continue():
                return exits.continues
            case ast.If(test=test, body=body, orelse=orelse):
                return self._expression(test, self.block(body, after, exits) | self.block(orelse, after, exits))
            case ast.For() | ast.AsyncFor():
                return self._for(node, after, exits)
            case ast.While():
                return self._while(node, after, exits)
            case ast.Try() | ast.TryStar():
                return self._try(node, after, exits)
            case ast.With() | ast.AsyncWith():
                return self._with(node, after, exits)
            case ast.Match():
                return self._match(node, after, exits)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return self._definition(node, after)
            case _:
                return self._simple(node, after, exits)

    def _simple(self, node: ast.stmt, after: Names, exits: Exits) -> Names:
        match node:
            case ast.Assign(targets=targets, value=value):
                return self._expression(value, self._expressions(targets, after))
            case ast.AugAssign(target=ast.Name() as target, value=value):
                return self._expression(value, after - self._name(target)) | self._name(target)
            case ast.AugAssign(target=target, value=value):
                return self._expression(target, self._expression(value, after))
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                after = self._expression(annotation, after) if self.annotations else after
                if value is None and isinstance(target, ast.Name):
                    return after
                return self._optional(value, self._expression(target, after))
            case ast.Assert(test=test, msg=message):
                return self._expression(test, after | self._optional(message, exits.raises))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                return after - Scope(self.cls).visit(*names).stored
            case _:
                return self._children(node, after)

    def _for(self, node: ast.For | ast.AsyncFor, after: Names, exits: Exits) -> Names:
        ended = self.block(node.orelse, after, exits)
        match node.iter:
            case ast.Tuple(elts=[only]) | ast.List(elts=[only]) if not isinstance(only, ast.Starred):
                body = self.block(node.body, ended, exits._replace(breaks=after, continues=ended))
                return self._expression(only, self._expression(node.target, body))
            case iterable:
                pass
        head, known = ended, None
        while head != known:
            known = head
            body = self.block(node.body, head, exits._replace(breaks=after, continues=head))
            head = ended | self._expression(node.target, body)
        return self._expression(iterable, head)

    def _while(self, node: ast.While, after: Names, exits: Exits) -> Names:
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        ended = _NONE if forever else self.block(node.orelse, after, exits)
        head, known = _NONE, None
        while head != known:
            known = head
            body = self.block(node.body, head, exits._replace(breaks=after, continues=head))
            head = self._expression(node.test, ended | body)
        return head

    def _try(self, node: ast.Try | ast.TryStar, after: Names, exits: Exits) -> Names:
        if node.finalbody:
            after = self.block(node.finalbody, after.union(*exits), exits)
            exits = exits.through(after)
        caught = exits.raises
        for handler in node.handlers:
            body = self.block(handler.body, after, exits)
            if handler.name is not None:
                body -= {mangled(handler.name, self.cls)}
            caught |= self._optional(handler.type, body)
        completed = self.block(node.orelse, after, exits)
        return caught | self.block(node.body, completed, exits._replace(raises=caught))

    def _with(self, node: ast.With | ast.AsyncWith, after: Names, exits: Exits) -> Names:
        before = self.block(node.body, after, exits)
        for item in reversed(node.items):
            match item.context_expr:
                case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
                    before |= after
                case _:
                    pass
            before = self._expression(item.context_expr, self._optional(item.optional_vars, before))
        return before

    def _match(self, node: ast.Match, after: Names, exits: Exits) -> Names:
        unmatched = after
        for case in reversed(node.cases):
            body = self.block(case.body, after, exits)
            pattern = Scope(self.cls).visit(case.pattern)
            match case.pattern:
                case ast.MatchAs(pattern=None) if case.guard is None:
                    unmatched = body - pattern.stored
                case _:
                    guarded = body if case.guard is None else self._expression(case.guard, body | unmatched)
                    unmatched = unmatched | pattern.read | (guarded - pattern.stored)
        return self._expression(node.subject, unmatched)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, after: Names) -> Names:
        if isinstance(node, ast.ClassDef):
            after = after - {mangled(node.name, self.cls)}
            scope = Scope(node.name, "class").visit(*node.body)
            after = after.union(Liveness(node.name, True).block(node.body, _NONE), *(n.free for n in scope.nested))
        else:
            after = (after | Scope(self.cls).function(node).free) - {mangled(node.name, self.cls)}
        return self._expressions(_outer(node), after)

    def _optional(self, node: ast.expr | None, after: Names) -> Names:
        return after if node is None else self._expression(node, after)

    def _expressions(self, nodes: Iterable[ast.AST], after: Names) -> Names:
        for node in reversed(list(nodes)):
            after = self._expression(node, after)
        return after

    def _children(self, node: ast.AST, after: Names) -> Names:
        """What is live before the parts of a node, which are evaluated in the order in which they are written."""
        parts = sorted(ast.iter_child_nodes(node), key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)))
        return self._expressions(parts, after)

    def _name(self, node: ast.Name) -> Names:
        return frozenset({mangled(node.id, self.cls)})

    def _expression(self, node: ast.AST, after: Names) -> Names:
        match node:
            case ast.Name(ctx=ast.Store()):
                return after - self._name(node)
            case ast.Name(id=name):
                return after | read_by(name, self.cls)
            case ast.NamedExpr(target=target, value=value):
                return self._expression(value, after - self._name(target))
            case ast.BoolOp(values=[first, *others]):
                return self._expression(first, self._perhaps(others, after))
            case ast.Compare(left=left, comparators=[first, *others]):
                return self._expressions([left, first], self._perhaps(others, after))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._expression(test, self._expression(body, after) | self._expression(orelse, after))
            case ast.Lambda():
                return self._expressions(_outer(node), after | Scope(self.cls).function(node).free)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                scope = Scope(self.cls)
                return self._expression(node.generators[0].iter, after | scope.visit(node).nested[-1].free)
            case _:
                return self._children(node, after)

    def _perhaps(self, nodes: Sequence[ast.expr], after: Names) -> Names:
        """What is live before expressions each of which is evaluated only where those before it let it be."""
        before = after
        for node in reversed(nodes):
            before = after | self._expression(node, before)
        return before


# -- Loops that a replay can stop --------------------------------------------------------------------------------------


GOES_ON: Final = "_whynan_goes_on"
"""The name that the code calls before each turn."""
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def guard_while_loops(statements: Iterable[ast.stmt]) -> tuple[ast.stmt, ...]:
    """The same statements, whose ``while`` loops ask `GOES_ON` before each turn; positions stay."""
    copies = [copy.deepcopy(statement) for statement in statements]
    return tuple(made for each in copies if isinstance(made := _Ending().visit(each), ast.stmt))


class _Ending(ast.NodeTransformer):
    """Asks in the loops of one scope."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _SCOPES):
            return node
        self.generic_visit(node)
        if isinstance(node, ast.While):
            asked = ast.Call(ast.Name(GOES_ON, ast.Load()), [], [])
            node.test = ast.BoolOp(ast.And(), [asked, node.test])
            for made in (asked, asked.func, node.test):
                ast.copy_location(made, node.test.values[1])
        return node
