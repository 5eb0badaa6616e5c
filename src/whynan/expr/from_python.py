"""Terms from Python source: the expressions of a function, and of small functions that it calls."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from whynan.expr.pattern import binary, constant_value, is_sliced, sliced_source
from whynan.expr.term import (
    MULTIPLIED,
    Term,
    apply_operator,
    bind_arguments,
    canonical_term,
    number,
    power,
    product_of,
    sum_of,
)
from whynan.ops import signatures, spelling
from whynan.source.calls import function_of, operator_of
from whynan.source.dataflow import reaching_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.expr.term import Nodes
    from whynan.source.dataflow import Definition
    from whynan.source.text import Function, Place


# -- The small functions of a file whose calls can be read as what they compute, and the arguments of such a call ------


def find_helper(place: Place, callee: ast.expr) -> ast.FunctionDef | None:
    """The function of the module that a call is of, where it can be no other and only computes a value."""
    if not isinstance(callee, ast.Name) or place.tree is None:
        return None
    named = [n for n in place.tree.body if isinstance(n, ast.FunctionDef) and n.name == callee.id]
    stored = [
        n for n in place.parents if isinstance(n, ast.Name) and n.id == callee.id and isinstance(n.ctx, ast.Store)
    ]
    arguments = [n for n in place.parents if isinstance(n, ast.arg) and n.arg == callee.id]
    if len(named) != 1 or stored or arguments or callee.id in place.imports:
        return None
    function = named[0]
    given = function.args
    if function.decorator_list or given.vararg or given.kwarg or given.posonlyargs:
        return None
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        return None
    return function if all(isinstance(s, (ast.Assign, ast.AnnAssign)) for s in body[:-1]) else None


def return_expression(function: ast.FunctionDef) -> ast.expr:
    """The expression that such a function returns."""
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    assert last.value is not None
    return last.value


def bind_call(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments of a call by parameter, defaults among them; None where they do not fit."""
    parameters = [a.arg for a in [*function.args.args, *function.args.kwonlyargs]]
    positional = [a.arg for a in function.args.args]
    if len(call.args) > len(positional) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    given = dict(zip(positional, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in given:
            return None
        given[keyword.arg] = keyword.value
    defaults = dict(zip(reversed(positional), reversed(function.args.defaults), strict=False))
    for name, value in [
        *defaults.items(),
        *zip([a.arg for a in function.args.kwonlyargs], function.args.kw_defaults, strict=True),
    ]:
        if value is not None:
            given.setdefault(name, value)
    return given if set(given) == set(parameters) else None


# -- Reads the expressions of a function as terms ----------------------------------------------------------------------


Node = ast.expr | ast.AugAssign
_BINARY: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.MatMult, ast.Mod)
"""Symbols that are read; bits, and quotients rounded down, are leaves."""
_PLAIN: Final = frozenset({"int", "float", "len", "min", "max", "abs", "range", "tuple", "list", "bool", "isinstance"})


class Reader:
    """The terms of one function's expressions."""

    tolerance = 1e-9

    def __init__(self, place: Place, function: Function | ast.Module) -> None:
        self.place = place
        self.reaching = reaching_in(place, function)
        self._read: dict[ast.AST, Term] = {}
        self._keys: dict[int, tuple[Term, object]] = {}
        self._results: dict[ast.Call, Term | None] = {}

    def read(self, node: Node) -> Term:
        """The term of an expression."""
        if node not in self._read:
            self._read[node] = self._term(node)
        return self._read[node]

    def _term(self, node: Node) -> Term:
        own: Nodes = frozenset({node})
        constant = constant_value(node, self.place.meaning)
        if constant is not None and isinstance(node, ast.expr):
            return number(constant, node)
        match node:
            case ast.Constant(value=value):
                return Term("constant", text=repr(value), key=("constant", repr(value)), node=node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return product_of([number(-1), self.read(operand)], node, own=own)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case (
                ast.BinOp(left=left, op=symbol, right=right)
                | ast.AugAssign(target=ast.Name() | ast.Attribute() | ast.Subscript() as left, op=symbol, value=right)
            ) if isinstance(symbol, _BINARY):
                return canonical_term(*binary(symbol, self.read(left), self.read(right)), node, own)
            case ast.Compare(left=left, ops=[symbol], comparators=[right]) if type(symbol) in spelling.COMPARISONS:
                given = [("input", self.read(left)), ("other", self.read(right))]
                return canonical_term(spelling.COMPARISONS[type(symbol)], given, node, own)
            case ast.Call():
                return self._call(node) or self._leaf(node)
            case (
                ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=0))
                | ast.Attribute(value=ast.Call() as call, attr="values")
            ):
                found = self._call(call)
                if found is not None and found.name in ("max", "min") and found.child("dim") is not None:
                    return apply_operator("a" + found.name, found.children, node, own=own | {call})
                return self._leaf(node)
            case ast.Subscript(value=value) if is_sliced(node):
                return sliced_source(self.read(value), node)
            case ast.Attribute(value=ast.Call(args=[ast.Attribute(value=value, attr="dtype")]) as call, attr=limit):
                if self.place.meaning(call.func) != ["torch", "finfo"]:
                    return self._leaf(node)
                kind = apply_operator("finfo", [("input", self.read(value))], own=frozenset({call}))
                return apply_operator("." + limit, [("input", kind)], node, own=own)
            case _:
                return self._leaf(node)

    def _call(self, node: ast.Call) -> Term | None:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return None
        name, _ = operator_of(self.place, node)
        values = list(node.args)
        settings: dict[str, ast.expr] = {}
        if name is None:
            instance = self._instance(node.func)
            if instance is None:
                return None
            name, settings = instance
        elif function_of(self.place, node.func) is None and isinstance(node.func, ast.Attribute):
            values.insert(0, node.func.value)
            if name == "where":
                values[:2] = values[1::-1]
        keywords = {k.arg: self.read(k.value) for k in node.keywords if k.arg is not None}
        keywords |= {k: self._setting(node.func, k, value) for k, value in settings.items()}
        if keywords.keys() & {"alpha", "rounding_mode", "out"}:
            return None
        given = bind_arguments(name, [self.read(value) for value in values], keywords)
        if not given:
            return None
        if name in ("max", "min"):
            name = {1: "a" + name}.get(len(given), name)
        return canonical_term(name, given, node, frozenset({node}))

    def _instance(self, callee: ast.expr) -> tuple[str, dict[str, ast.expr]] | None:
        """The operator that an instance of a module without parameters is: ``nn.Softmax(dim=-1)``."""
        made = self.construction(callee)
        if not isinstance(made, ast.Call):
            return None
        names = self.place.meaning(made.func)
        if names is None or names[:2] != ["torch", "nn"] or names[-1] not in signatures.MODULES:
            return None
        name, parameters = signatures.MODULES[names[-1]]
        given = dict(zip(parameters.split(), made.args, strict=False))
        given |= {k.arg: k.value for k in made.keywords if k.arg is not None}
        if made is callee and any(not _is_constant(value) for value in given.values()):
            return None
        given.pop("inplace", None)
        return name, given

    def construction(self, callee: ast.expr) -> ast.expr | None:
        """What is called, as the one expression that it was made by; None where that is not known."""
        match callee:
            case ast.Attribute():
                return self._attribute(callee)
            case ast.Name():
                return self._named(callee)
            case _:
                return callee

    def _setting(self, callee: ast.expr, name: str, value: ast.expr) -> Term:
        """What an instance was constructed with, which it keeps as an attribute."""
        if _is_constant(value):
            return self.read(value)
        text = f"{self.place.code(callee)}.{name}"
        return Term("constant", text=text, key=("constant", text))

    def instance_function(self, node: ast.Call) -> tuple[str, dict[str, str | None]] | None:
        """Of a call of an instance of a module without parameters: its function, and what it was constructed with.

        The latter as literals, None for what the instance is asked for. None for any other call.
        """
        instance = self._instance(node.func) if operator_of(self.place, node)[0] is None else None
        if instance is None:
            return None
        name, settings = instance
        home = signatures.HOMES.get(name)
        kept = {k: self.place.code(value) if _is_constant(value) else None for k, value in settings.items()}
        return f"torch.{home}.{name}" if home else f"torch.{name}", kept

    def _named(self, callee: ast.Name) -> ast.expr | None:
        """What a name was set to, where one assignment does so: in the function, or in the module around it."""
        known = [d for d in self.reaching.definitions_at(callee) if not d.written]
        if len(known) != 1 or self.place.tree is None:
            return None
        if known[0].node is not None:
            return known[0].value if isinstance(known[0].value, ast.expr) else None
        stores = [
            node
            for node in ast.walk(self.place.tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == callee.id
        ]
        parents = [self.place.parents[node] for node in stores if self.place.function(node) is self.place.tree]
        made = [parent.value for parent in parents if isinstance(parent, ast.Assign)]
        return made[0] if len(made) == len(parents) == 1 else None

    def _attribute(self, callee: ast.Attribute) -> ast.expr | None:
        """What ``self.name`` was set to, where the class does so once."""
        if not (isinstance(callee.value, ast.Name) and callee.value.id == "self"):
            return None
        owner = next((n for n in self.place.above(callee) if isinstance(n, ast.ClassDef)), None)
        if owner is None:
            return None
        made: list[ast.expr | None] = []
        for node in ast.walk(owner):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == callee.attr:
                parent = self.place.parents[node]
                made.append(parent.value if isinstance(parent, ast.Assign) else None)
        return made[0] if len(made) == 1 else None

    def _leaf(self, node: Node) -> Term:
        pure = self.is_pure(node)
        names = sorted(
            (n.id, tuple(sorted(id(d) for d in self.reaching.definitions_at(n))))
            for n in ast.walk(node)
            if isinstance(n, ast.Name)
        )
        key = ("leaf", ast.dump(node), tuple(names)) if pure else ("leaf", id(node))
        return Term("leaf", key=key, node=node)

    def is_pure(self, node: ast.AST) -> bool:
        """Whether an expression has the same value each time, and does nothing else."""
        for inner in ast.walk(node):
            if isinstance(inner, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.AugAssign)):
                return False
            if isinstance(inner, ast.Call) and not self.is_pure_call(inner):
                return False
        return True

    def is_pure_call(self, node: ast.Call) -> bool:
        """Whether a call itself, its arguments apart, has the same value each time and does nothing else."""
        if isinstance(node.func, ast.Name) and node.func.id in _PLAIN and node.func.id not in self.place.assigned_names:
            return True
        if (self.place.meaning(node.func) or [""])[0] == "math":
            return True
        name, in_place = operator_of(self.place, node)
        if name is None:
            return self._instance(node.func) is not None
        return name in signatures.PURE and not in_place

    def definition(self, term: Term) -> Definition | None:
        """The only assignment that made a name's value, where its expression is known."""
        if term.name != "leaf" or not isinstance(term.node, ast.Name):
            return None
        found = self.reaching.single_definition(term.node)
        if (
            found is None
            or found.value is None
            or self.place.is_deferred(term.node)
            or self.place.is_deferred(found.value)
        ):
            return None
        return found

    def expand(self, term: Term) -> Term | None:
        """The term of the expression that a name stands for."""
        if term.name == "leaf" and isinstance(term.node, ast.NamedExpr):
            return self.read(term.node.value)
        if term.name == "leaf" and isinstance(term.node, ast.Call):
            return self._helper_call_term(term.node)
        found = self.definition(term)
        return None if found is None or found.value is None else self.read(found.value)

    def _helper_call_term(self, node: ast.Call) -> Term | None:
        """What a call of a small function of the same file computes."""
        if node not in self._results:
            self._results[node] = None  # a function that calls itself is none of these
            function = find_helper(self.place, node.func)
            given = bind_call(function, node) if function is not None else None
            if function is not None and given is not None:
                arguments = {name: self.read(value) for name, value in given.items()}
                inner = self if function is self.reaching.function else Reader(self.place, function)
                found = _inline(inner, inner.read(return_expression(function)), arguments)
                self._results[node] = None if found is None else replace(found, own=found.own | {node}, node=None)
        return self._results[node]

    def is_equivalent(self, first: Term, second: Term) -> bool:
        """Whether two terms have one value, whatever names their parts were given."""
        return first.key == second.key or self.full_key(first) == self.full_key(second)

    def unwrap(self, term: Term) -> tuple[Term, tuple[ast.Call, ast.expr]] | None:
        """The operand of a cast or a view, and the call with the operand's expression."""
        inner = term.child("input")
        if term.name not in signatures.CASTS | signatures.VIEWS or inner is None or not isinstance(term.node, ast.Call):
            return None
        return (inner, (term.node, inner.node)) if isinstance(inner.node, ast.expr) else None

    def decompositions(self, pattern: Term) -> tuple[Term, ...]:
        """None: the source has the names of its operators."""
        del pattern
        return ()

    def is_division(self, node: object) -> bool:
        """Whether a node of the source is a division."""
        match node:
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                return True
            case ast.Call(func=ast.Attribute(attr=name)):
                return name.rstrip("_") in ("div", "divide", "true_divide")
            case _:
                return False

    def full_key(self, term: Term, depth: int = 24) -> object:
        """What a term is, whatever names its parts were given."""
        known = self._keys.get(id(term))
        if known is not None:
            return known[1]
        made = self.expand(term) if term.name == "leaf" and depth else None
        if made is not None:
            key = self.full_key(made, depth - 1)
        elif not term.children:
            key = term.key
        else:
            rebuilt = _with_children(term, [(p, self._expanded_key(c, depth - 1)) for p, c in term.children])
            key = rebuilt.key
        self._keys[id(term)] = term, key
        return key

    def _expanded_key(self, term: Term, depth: int) -> Term:
        return replace(term, name="leaf" if not term.children else term.name, key=self.full_key(term, depth))


def _inline(inner: Reader, term: Term, arguments: dict[str, Term]) -> Term | None:
    """A term of a called function as one of its caller: its parameters as what they were given; None where it cannot.

    Names of the module stay, and names of the function become what they stand for.
    """
    if term.name == "leaf":
        return _leaf(inner, term, arguments)
    if not term.children:
        return term
    children: list[tuple[str, Term]] = []
    for parameter, child in term.children:
        found = _inline(inner, child, arguments)
        if found is None:
            return None
        children.append((parameter, found))
    if all(new is old for (_, new), (_, old) in zip(children, term.children, strict=True)):
        return term
    operands = [child for _, child in children]
    rebuilt: Callable[[], Term] = {
        "add": lambda: sum_of(operands, own=term.own, hidden=term.hidden),
        "mul": lambda: product_of(operands, own=term.own),
        "pow": lambda: power(operands[0], operands[1], own=term.own, divided=term.origin is not None),
    }.get(term.name, lambda: apply_operator(term.name, children, own=term.own))
    made = rebuilt()
    return replace(made, text=MULTIPLIED) if term.text == MULTIPLIED and made.name == "pow" else made


def _leaf(inner: Reader, term: Term, arguments: dict[str, Term]) -> Term | None:
    node = term.node
    made = inner.expand(term)
    if made is not None:
        return _inline(inner, made, arguments)
    if isinstance(node, ast.Name):
        definition = inner.reaching.single_definition(node)
        if definition is not None and isinstance(definition.node, ast.arg):
            return arguments.get(node.id)
    if node is None or not inner.is_pure(node):
        return None
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    if any(definition.node is not None for name in names for definition in inner.reaching.definitions_at(name)):
        return None
    return replace(term, key=("global", ast.dump(node)))


def _with_children(term: Term, children: list[tuple[str, Term]]) -> Term:
    if term.name in ("add", "mul"):
        key = (term.name, tuple(sorted(repr(c.key) for _, c in children)))
        return Term(term.name, tuple(children), key=key)
    return apply_operator(term.name, children)


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
