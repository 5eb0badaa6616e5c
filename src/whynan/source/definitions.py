"""The definition of a value: the expression, or the number, that a name in a call surely stands for, in its scope."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from whynan.source.positions import locate
from whynan.source.syntax import Span, Syntax, span_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

Numbers: TypeAlias = "float | list[Numbers | None]"
"""A number, or a list of numbers and lists; None in the place of what is not known."""

_CONVERSIONS: Final = frozenset("numpy.asarray numpy.ascontiguousarray numpy.array numpy.float32 numpy.float64".split())
_COPIES: Final = frozenset(("astype", "copy"))
_OF_NUMBERS: Final = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.unaryop, ast.operator)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (ast.Module, *_FUNCTIONS)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_NAMED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
_ARITHMETIC: Final[dict[type[ast.operator], str]] = {
    ast.Div: "divide",
    ast.Mult: "multiply",
    ast.Sub: "subtract",
    ast.Add: "add",
    ast.Pow: "power",
}
_MOST: Final = 16
"""So many names are followed."""


class Definition(NamedTuple):
    """An expression, where it stands, and the NumPy operation that it is."""

    syntax: Syntax
    node: ast.expr
    text: str

    @property
    def span(self) -> Span:
        return span_of(self.node)

    @property
    def operation(self) -> str | None:
        """The name of the operation whose operands are all names or numbers: ``log``, ``divide``; None for others."""
        found = _operation(self.syntax, self.node)
        return None if found is None else found[0]

    @property
    def operands(self) -> tuple[str | float, ...]:
        """The names and numbers that the operation is given."""
        found = _operation(self.syntax, self.node)
        return () if found is None else found[1]

    def definition_of(self, name: str) -> Definition | None:
        """What a name in the expression stands for."""
        return _resolve(self.syntax, next(n for n in ast.walk(self.node) if isinstance(n, ast.Name) and n.id == name))


def argument_definition(code: CodeType, lasti: int) -> Definition | None:
    """What the first argument of a call stands for, as far as its names surely tell."""
    located = locate(code, lasti)
    if located is None or not isinstance(located.node, ast.Call) or not located.node.args:
        return None
    return _resolve(located.syntax, located.node.args[0])


def argument_numbers(code: CodeType, lasti: int) -> Numbers | None:
    """The numbers that the first argument of a call surely is, as the source writes them: ``1e39``, ``[0.0, big]``."""
    located = locate(code, lasti)
    if located is None or not isinstance(located.node, ast.Call):
        return None
    call = located.node
    given = next(iter(call.args), None) or next((k.value for k in call.keywords if k.arg == "data"), None)
    return None if given is None else _numbers(located.syntax, given)


def _numbers(syntax: Syntax, node: ast.expr) -> Numbers | None:
    match _end(syntax, node):
        case ast.List(elts=entries) | ast.Tuple(elts=entries):
            return [_numbers(syntax, entry) for entry in entries]
        case ast.Constant() as constant:
            return _number(constant)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = _numbers(syntax, inner)
            return -value if isinstance(value, float) else None
        case ast.BinOp(left=left, op=symbol, right=right):
            first, second = _numbers(syntax, left), _numbers(syntax, right)
            if isinstance(first, float) and isinstance(second, float):
                return arithmetic(symbol, first, second)
            return None
        case _:
            return None


def is_declared_number(syntax: Syntax, node: ast.AST) -> bool:
    """Whether an expression is of Python's numbers alone, as constants, defaults and annotations of parameters say."""
    match node:
        case ast.Constant():
            return _number(node) is not None
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return is_declared_number(syntax, inner)
        case ast.BinOp(left=left, right=right):
            return is_declared_number(syntax, left) and is_declared_number(syntax, right)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            stores = [n for n in syntax.parents if isinstance(n, ast.Attribute) and _stores(n, name)]
            made = syntax.parents.get(stores[0]) if len(stores) == 1 else None
            return isinstance(made, ast.Assign) and is_declared_number(syntax, made.value)
        case ast.Name(id=name):
            function = next((n for n in syntax.above(node) if isinstance(n, _FUNCTIONS)), None)
            if function is None or all(name != given.arg for given in _parameters(function)):
                return isinstance(end := _end(syntax, node), ast.Constant) and _number(end) is not None
            stored = (n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            return all(n.id != name for n in stored) and _is_number_parameter(function, name)
        case _:
            return False


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def _is_number_parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    for parameter, default in zip(_parameters(function), defaults, strict=True):
        if parameter.arg == name:
            declared = parameter.annotation
            if isinstance(declared, ast.Name):
                return declared.id in ("float", "int")
            return isinstance(default, ast.Constant) and _number(default) is not None
    return False


def _number(constant: ast.Constant) -> float | None:
    match constant.value:
        case bool():
            return None
        case int() | float() as number:
            try:
                return float(number)
            except OverflowError:
                return None
        case _:
            return None


def arithmetic(symbol: ast.operator, first: float, second: float) -> float | None:
    """What Python makes of two numbers; None where that is no number."""
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
                # a negative number to a broken power is complex
                value = first**second
                return value if isinstance(value, float) else None  # pyright: ignore[reportUnnecessaryIsInstance]
            case _:
                return None
    except ArithmeticError:
        return None


def _resolve(syntax: Syntax, node: ast.expr) -> Definition | None:
    end = _end(syntax, node)
    text = None if end is None or isinstance(end, ast.Constant) else syntax.line_of(span_of(end))
    return None if end is None or text is None else Definition(syntax, end, text)


def _end(syntax: Syntax, node: ast.expr) -> ast.expr | None:
    """What is no name any more, and no other dtype of something."""
    for _ in range(_MOST):
        node = _strip_conversions(syntax, node)
        if isinstance(node, ast.Attribute):
            return _of_class(syntax, node) or node
        if not isinstance(node, ast.Name):
            return node
        found = sole_reaching_value(syntax, node) or _of_module(syntax, node.id)
        if found is None:
            return None
        node = found
    return None


def _of_module(syntax: Syntax, name: str) -> ast.expr | None:
    """The number that a module gives a name, where nothing else in its file has that name."""
    return _single_binding(syntax, name, ast.Module)


def _of_class(syntax: Syntax, node: ast.Attribute) -> ast.expr | None:
    """The number that a class gives ``self.name``, where nothing else in its file has that name or stores into it."""
    own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    if not own or any(isinstance(n, ast.Attribute) and _stores(n, node.attr) for n in syntax.parents):
        return None
    return _single_binding(syntax, node.attr, ast.ClassDef)


def _stores(node: ast.Attribute, name: str) -> bool:
    return node.attr == name and not isinstance(node.ctx, ast.Load)


def _single_binding(syntax: Syntax, name: str, scope: type[ast.AST]) -> ast.expr | None:
    binding = [node for node in syntax.parents if _binds(node, name)]
    statement = syntax.parents.get(binding[0]) if len(binding) == 1 else None
    if not isinstance(statement, ast.stmt) or not isinstance(syntax.parents.get(statement), scope):
        return None
    value = _assigned(statement, name)
    return value if value is not None and all(isinstance(n, _OF_NUMBERS) for n in ast.walk(value)) else None


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a node is, or says that another is, a binding of a name."""
    match node:
        case ast.Name(id=found, ctx=ast.Store() | ast.Del()) | ast.arg(arg=found) | ast.MatchMapping(rest=found):
            return found == name
        case ast.alias(name=found, asname=other):
            return name == (other or found) or found == "*"
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return name in names
        case _:
            return isinstance(node, _NAMED) and node.name == name


def _strip_conversions(syntax: Syntax, node: ast.expr) -> ast.expr:
    """What is inside of the calls that give the same elements in another dtype."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _COPIES:
            node = node.func.value
        elif numpy_name(syntax, node.func) in _CONVERSIONS and node.args and not _is_array_literal(node.args[0]):
            node = node.args[0]
        else:
            break
    return node


def _is_array_literal(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Tuple, ast.Constant, ast.Starred, ast.ListComp, ast.GeneratorExp))


def numpy_name(syntax: Syntax, node: ast.expr) -> str | None:
    """The dotted name of a function that an import gives, where nothing else in the file has its name."""
    return ".".join(syntax.meaning(node) or ()) or None


def sole_reaching_value(syntax: Syntax, use: ast.Name) -> ast.expr | None:
    """The one value that a name surely has where it is read; None where it is not certain."""
    node: ast.AST = use
    parents = syntax.parents
    if _shared(syntax, use.id):
        return None
    while not isinstance(node, _SCOPES):
        parent = parents.get(node)
        if parent is None or isinstance(parent, (ast.Lambda, ast.ClassDef, ast.comprehension)):
            return None
        if isinstance(parent, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)):
            return None
        if isinstance(node, ast.stmt):
            block = next((b for b in blocks_of(parent) if node in b), None)
            if block is None:
                return None
            for earlier in reversed(block[: block.index(node)]):
                if _touches(earlier, use.id):
                    return _assigned(earlier, use.id)
        if isinstance(parent, _LOOPS) and _touches(parent, use.id):
            return None
        node = parent
    return None


def _shared(syntax: Syntax, name: str) -> bool:
    """Whether a function says that it binds a name of the scope around it."""
    return any(isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names for n in syntax.parents)


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements that a statement, or a module, holds."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block


def _assigned(statement: ast.stmt, name: str) -> ast.expr | None:
    """The value that a statement gives a name and nothing else."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
            return value
        case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
            return value
        case _:
            return None


def _touches(statement: ast.AST, name: str) -> bool:
    """Whether a statement binds a name, or may change what it stands for in place."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=found, ctx=ast.Store() | ast.Del()) if found == name:
                return True
            case (
                ast.Subscript(value=inner, ctx=ast.Store() | ast.Del())
                | ast.Attribute(value=inner, ctx=ast.Store() | ast.Del())
            ) if _root(inner) == name:
                return True
            case ast.keyword(arg="out", value=inner) if _root(inner) == name:
                return True
            case ast.Expr(value=ast.Call() as call) if _is_passed_to(call, name):
                # called for what it does: ``feats.fill(0)``, ``np.log(a, feats)``, ``clean(feats)``
                return True
            case ast.alias(name=found, asname=other) if name in (other or found, "*") or found == "*":
                return True
            case _ if isinstance(node, _NAMED) and node.name == name:
                return True
            case ast.MatchMapping(rest=found) if found == name:
                return True
            case _:
                pass
    return False


def _is_passed_to(call: ast.Call, name: str) -> bool:
    receiver = _root(call.func.value) if isinstance(call.func, ast.Attribute) else None
    if isinstance(call.func, ast.Name) and call.func.id == "print":
        return False
    return name in (receiver, *(_root(a) for a in call.args), *(_root(k.value) for k in call.keywords))


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _operation(syntax: Syntax, node: ast.expr) -> tuple[str, tuple[str | float, ...]] | None:
    """An operation on names and numbers alone, by NumPy's name for it."""
    match node:
        case ast.BinOp(op=op, left=left, right=right):
            name = _ARITHMETIC.get(type(op))
            values = [left, right]
        case ast.Call(func=func, args=values, keywords=[]):
            dotted = numpy_name(syntax, func) or ""
            name = dotted.removeprefix("numpy.") if dotted.startswith("numpy.") else None
        case _:
            return None
    operands = tuple(operand for v in values if (operand := _operand(v)) is not None)
    return None if name is None or len(operands) != len(values) else (name, operands)


def _operand(node: ast.expr) -> str | float | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant() as constant:
            return _number(constant)
        case _:
            return None
