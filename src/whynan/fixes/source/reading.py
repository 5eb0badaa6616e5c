"""Reads expressions, of a program's source and of a pattern, as terms."""

# pyright: strict

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from whynan.fixes.source import signatures
from whynan.fixes.source.places import Place
from whynan.fixes.source.reaching import Reaching
from whynan.fixes.source.terms import NONE, Nodes, Term, applied, number, power, product_of, sum_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.fixes.source.places import Function
    from whynan.fixes.source.reaching import Definition

_COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.Mod: "remainder",
}
_EXPONENTS: Final = {"sqrt": 0.5, "rsqrt": -0.5, "square": 2.0, "reciprocal": -1.0}
_PLAIN: Final = frozenset({"int", "float", "len", "min", "max", "abs", "range", "tuple", "list", "bool", "isinstance"})
_KNOWN: Final = frozenset(signatures.SIGNATURES) | signatures.UNARY | signatures.CASTS | signatures.VIEWS
Node = ast.expr | ast.AugAssign


def canonical_term(name: str, given: list[tuple[str, Term]], node: Node | None, own: Nodes) -> Term:
    """An operator on its arguments, in the one form that its spellings share."""
    values = dict(given)
    first = given[0][1] if given else None
    second = values.get("other") or values.get("exponent")
    simple = len(given) == 2 and second is not None and first is not None
    if first is not None and len(given) == 1:
        if name == "neg":
            return product_of([number(-1), first], node, own=own)
        if name in _EXPONENTS:
            return power(first, number(_EXPONENTS[name]), node, own=own, divided=name == "reciprocal")
        if name == "log1p":
            return applied("log", [("input", sum_of([number(1), first], own=own, hidden=True))], node, own=own)
        if name == "expm1":
            return sum_of([applied("exp", [("input", first)], own=own), number(-1)], node, own=own)
        if name in ("log2", "log10"):
            scale = 1 / math.log(2 if name == "log2" else 10)
            return product_of([number(scale), applied("log", [("input", first)], own=own)], node, own=own)
    if simple and first is not None and second is not None:
        match name:
            case "add":
                return sum_of([first, second], node, own=own)
            case "sub":
                return sum_of([first, product_of([number(-1), second])], node, own=own)
            case "rsub":
                return sum_of([second, product_of([number(-1), first])], node, own=own)
            case "mul":
                return product_of([first, second], node, own=own)
            case "div":
                return product_of([first, power(second, number(-1), own=own, divided=True)], node, own=own)
            case "pow":
                return power(first, second, node, own=own)
            case _:
                pass
    if name in ("clamp_min", "clamp_max"):
        given, name = [given[0], ("min" if name == "clamp_min" else "max", given[-1][1])], "clamp"
    if name == "mse_loss" and set(values) == {"input", "target"}:
        difference = sum_of([values["input"], product_of([number(-1), values["target"]])], own=own)
        return applied("mean", [("input", power(difference, number(2), own=own))], node, own=own)
    return applied(name, given, node, own=own)


def bound(name: str, values: Sequence[Term], keywords: dict[str, Term]) -> list[tuple[str, Term]] | None:
    """Arguments by the names of the operator's parameters, in its order; None where they do not fit."""
    parameters = signatures.SIGNATURES.get(name, ("input",))
    if len(values) > len(parameters):
        parameters = (*parameters, *(f"argument{i}" for i in range(len(parameters), len(values))))
    given = dict(zip(parameters, values, strict=False))
    for keyword, value in keywords.items():
        key = keyword
        if keyword not in parameters and signatures.KEYWORDS.get(keyword) in parameters:
            key = signatures.KEYWORDS[keyword]
            if keyword == "unbiased" and value.name == "constant":
                value = number(1 if value.text == "True" else 0, value.node)  # noqa: PLW2901 - the same, by its other name
        if key in given:
            return None
        given[key] = value
    order = {parameter: i for i, parameter in enumerate(parameters)}
    kept = {p: v for p, v in given.items() if not _is_default(p, v)}
    return sorted(kept.items(), key=lambda item: order.get(item[0], len(order)))


def _is_default(parameter: str, value: Term) -> bool:
    if parameter not in signatures.DEFAULTS:
        return False
    default = signatures.DEFAULTS[parameter]
    return value.text == repr(default) if value.name == "constant" else value.value == default and value.name == "number"


class Reader:
    """The terms of one function's expressions."""

    def __init__(self, place: Place, function: Function | ast.Module) -> None:
        self.place = place
        self.reaching = Reaching(place, function)
        self._read: dict[ast.AST, Term] = {}
        self._keys: dict[int, tuple[Term, object]] = {}

    def read(self, node: Node) -> Term:
        """The term of an expression."""
        if node not in self._read:
            self._read[node] = self._term(node)
        return self._read[node]

    def _term(self, node: Node) -> Term:
        own: Nodes = frozenset({node})
        constant = _number(self.place, node)
        if constant is not None and isinstance(node, ast.expr):
            return number(constant, node)
        match node:
            case ast.Constant(value=value):
                return Term("constant", text=repr(value), key=("constant", repr(value)), node=node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return product_of([number(-1), self.read(operand)], node, own=own)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _BINARY:
                return self._binary(_BINARY[type(symbol)], left, right, node)
            case ast.AugAssign(target=ast.Name() as left, op=symbol, value=right) if type(symbol) in _BINARY:
                return self._binary(_BINARY[type(symbol)], left, right, node)
            case ast.Compare(left=left, ops=[symbol], comparators=[right]) if type(symbol) in _COMPARISONS:
                return self._binary(_COMPARISONS[type(symbol)], left, right, node)
            case ast.Call():
                return self._call(node) or self._leaf(node)
            case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=0)) | ast.Attribute(
                value=ast.Call() as call, attr="values"
            ):
                found = self._call(call)
                if found is not None and found.name in ("max", "min") and found.child("dim") is not None:
                    return applied("a" + found.name, found.children, node, own=own | {call})
                return self._leaf(node)
            case ast.Attribute(value=ast.Call(args=[ast.Attribute(value=value, attr="dtype")]) as call, attr=limit):
                if self.place.meaning(call.func) != ["torch", "finfo"]:
                    return self._leaf(node)
                kind = applied("finfo", [("input", self.read(value))], own=frozenset({call}))
                return applied("." + limit, [("input", kind)], node, own=own)
            case _:
                return self._leaf(node)

    def _binary(self, name: str, left: ast.expr, right: ast.expr, node: Node) -> Term:
        parameters = ("input", "exponent" if name == "pow" else "other")
        given = list(zip(parameters, (self.read(left), self.read(right)), strict=True))
        return canonical_term(name, given, node, frozenset({node}))

    def _call(self, node: ast.Call) -> Term | None:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return None
        name, _ = signatures.operator_of(self.place, node)
        values = list(node.args)
        settings: dict[str, ast.expr] = {}
        if name is None:
            found = self._instance(node.func)
            if found is None or found[0] is None:
                return None
            name, settings = found
        elif signatures.function_of(self.place, node.func) is None and isinstance(node.func, ast.Attribute):
            values.insert(0, node.func.value)
            if name == "where":
                values[:2] = values[1::-1]
        keywords = {k.arg: self.read(k.value) for k in node.keywords if k.arg is not None}
        keywords |= {k: self.read(value) for k, value in settings.items()}
        if keywords.keys() & {"alpha", "rounding_mode", "out"}:
            return None
        given = bound(name, [self.read(value) for value in values], keywords)
        if not given:
            return None
        if name in ("max", "min"):
            name = {1: "a" + name}.get(len(given), name)
        return canonical_term(name, given, node, frozenset({node}))

    def _instance(self, callee: ast.expr) -> tuple[str | None, dict[str, ast.expr]] | None:
        """The operator that an instance of a module without parameters is: ``nn.Softmax(dim=-1)``."""
        if isinstance(callee, ast.Attribute):
            made = self._attribute(callee)
        else:
            made = callee
        if not isinstance(made, ast.Call):
            return None
        names = self.place.meaning(made.func)
        if names is None or names[:2] != ["torch", "nn"] or names[-1] not in signatures.MODULES:
            return None
        name, parameters = signatures.MODULES[names[-1]]
        given = dict(zip(parameters.split(), made.args, strict=False))
        given |= {k.arg: k.value for k in made.keywords if k.arg is not None}
        if any(not _is_constant(value) for value in given.values()):
            return None
        given.pop("inplace", None)
        return name, given

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
            (n.id, tuple(sorted(id(d) for d in self.reaching.of(n)))) for n in ast.walk(node) if isinstance(n, ast.Name)
        )
        key = ("leaf", ast.dump(node), tuple(names)) if pure else ("leaf", id(node))
        return Term("leaf", key=key, node=node)

    def is_pure(self, node: ast.AST) -> bool:
        """Whether an expression has the same value each time, and does nothing else."""
        for inner in ast.walk(node):
            if isinstance(inner, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.AugAssign)):
                return False
            if isinstance(inner, ast.Call) and not self._is_pure_call(inner):
                return False
        return True

    def _is_pure_call(self, node: ast.Call) -> bool:
        if isinstance(node.func, ast.Name) and node.func.id in _PLAIN and node.func.id not in self.place.assigned:
            return True
        if (self.place.meaning(node.func) or [""])[0] == "math":
            return True
        name, in_place = signatures.operator_of(self.place, node)
        if name is None:
            return self._instance(node.func) is not None
        return name in signatures.PURE and not in_place

    def definition(self, term: Term) -> Definition | None:
        """The only assignment that made a name's value, where its expression is known."""
        if term.name != "leaf" or not isinstance(term.node, ast.Name):
            return None
        found = self.reaching.only(term.node)
        if found is None or found.value is None or self.place.is_late(term.node) or self.place.is_late(found.value):
            return None
        return found

    def expanded(self, term: Term) -> Term | None:
        """The term of the expression that a name stands for."""
        if term.name == "leaf" and isinstance(term.node, ast.NamedExpr):
            return self.read(term.node.value)
        found = self.definition(term)
        return None if found is None or found.value is None else self.read(found.value)

    def full_key(self, term: Term, depth: int = 24) -> object:
        """What a term is, whatever names its parts were given."""
        known = self._keys.get(id(term))
        if known is not None:
            return known[1]
        made = self.expanded(term) if term.name == "leaf" and depth else None
        if made is not None:
            key = self.full_key(made, depth - 1)
        elif not term.children:
            key = term.key
        else:
            rebuilt = _rebuilt(term, [(p, self._opened(c, depth - 1)) for p, c in term.children])
            key = rebuilt.key
        self._keys[id(term)] = term, key
        return key

    def _opened(self, term: Term, depth: int) -> Term:
        return replace(term, name="leaf" if not term.children else term.name, key=self.full_key(term, depth))


def _rebuilt(term: Term, children: list[tuple[str, Term]]) -> Term:
    if term.name in ("add", "mul"):
        key = (term.name, tuple(sorted(repr(c.key) for _, c in children)))
        return Term(term.name, tuple(children), key=key)
    return applied(term.name, children)


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _number(place: Place | None, node: ast.AST) -> float | None:
    """The value of an expression of numbers alone."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _number(place, operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=symbol, right=right):
            first, second = _number(place, left), _number(place, right)
            if first is None or second is None:
                return None
            return _computed(symbol, first, second)
        case ast.Attribute() if place is not None:
            names = place.meaning(node)
            value = getattr(math, names[1], None) if names and names[0] == "math" and len(names) == 2 else None
            return float(value) if isinstance(value, float) else None
        case ast.Call(func=callee, args=arguments, keywords=[]) if place is not None:
            names = place.meaning(callee)
            values = [_number(place, a) for a in arguments]
            if names and names[0] == "math" and len(names) == 2 and values and None not in values:
                return _called(names[1], [v for v in values if v is not None])
            return None
        case _:
            return None


def _computed(symbol: ast.operator, first: float, second: float) -> float | None:
    try:
        match symbol:
            case ast.Add():
                return first + second
            case ast.Sub():
                return first - second
            case ast.Mult():
                return first * second
            case ast.Div():
                return first / second
            case ast.Pow():
                value = first**second
                return value if isinstance(value, float) else None  # pyright: ignore[reportUnnecessaryIsInstance]
            case _:
                return None
    except ArithmeticError:
        return None


def _called(name: str, values: list[float]) -> float | None:
    function = getattr(math, name, None)
    try:
        value = function(*values) if callable(function) else None
    except (ValueError, TypeError, ArithmeticError):
        return None
    return float(value) if isinstance(value, (int, float)) else None


def pattern(text: str) -> tuple[Term, ast.expr]:
    """A pattern of the language of intents as a term, with the tree whose nodes its parts are."""
    tree = ast.parse(text, mode="eval").body
    return _pattern(tree), tree


def _pattern(node: ast.expr) -> Term:
    own: Nodes = frozenset({node})
    constant = _number(None, node)
    if constant is not None:
        return number(constant, node)
    match node:
        case ast.Name(id=name):
            return Term("variable", text=name, key=("variable", name), node=node)
        case ast.Constant(value=value):
            return Term("constant", text=repr(value), key=("constant", repr(value)), node=node)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return product_of([number(-1), _pattern(operand)], node, own=own)
        case ast.BinOp(left=left, op=symbol, right=right):
            name = _BINARY[type(symbol)]
            parameters = ("input", "exponent" if name == "pow" else "other")
            given = list(zip(parameters, (_pattern(left), _pattern(right)), strict=True))
            return canonical_term(name, given, node, own)
        case ast.Compare(left=left, ops=[symbol], comparators=[right]):
            given = [("input", _pattern(left)), ("other", _pattern(right))]
            return applied(_COMPARISONS[type(symbol)], given, node, own=own)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            operator = signatures.canonical(name)[0]
            named = {k.arg: _pattern(k.value) for k in keywords if k.arg is not None}
            given = bound(operator, [_pattern(a) for a in arguments], named) or []
            if operator in ("max", "min") and len(given) == 1:
                operator = "a" + operator
            return canonical_term(operator, given, node, own)
        case ast.Attribute(value=value, attr=attribute):
            return applied("." + attribute, [("input", _pattern(value))], node, own=own)
        case _:
            return applied(ast.dump(node), [], node, own=NONE)
