"""Which source expression each operand of an operator came from; silent where that is not certain."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from whynan.ops import spelling
from whynan.ops.table import TORCH
from whynan.source.calls import function_of
from whynan.source.positions import locate
from whynan.source.syntax import dotted, span_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import CodeType

    from whynan.source.syntax import Syntax

_Operands = dict[str, ast.expr]


class _Operator(NamedTuple):
    """The operator that was dispatched, as far as its source can tell."""

    name: str
    in_place: bool
    arguments: Sequence[str]
    numbers: Collection[str] | None


def operand_expressions(
    code: CodeType,
    lasti: int,
    op_name: str,
    arg_names: Sequence[str],
    *,
    numbers: Collection[str] | None = None,
) -> dict[str, str]:
    """The source text of an operator's arguments, by their names in its schema; empty where it is not certain.

    `op_name` is the overload (``aten.div.Tensor``) or its base name, `arg_names` the schema's, in order. `numbers`
    names the arguments whose value is a Python number. Unknown (None), ``a * b`` stays silent: ATen is told the
    tensor first even where the number stands first. The entries of a list or tuple come as ``tensors[0]`` too.
    """
    located = locate(code, lasti)
    if located is None or located.node is None:
        return {}
    base = spelling.base_of(op_name)
    in_place = base.endswith("_") and not base.endswith("__")
    operator = _Operator(spelling.canonical(base), in_place, arg_names, numbers)
    operands = _operands(located.syntax, located.node, operator)
    found: dict[str, str] = {}
    for name, node in operands.items():
        if isinstance(node, (ast.List, ast.Tuple)) and not any(isinstance(e, ast.Starred) for e in node.elts):
            found |= _texts(located.syntax, {f"{name}[{i}]": entry for i, entry in enumerate(node.elts)})
        found |= _texts(located.syntax, {name: node})
    return found


def first_argument(code: CodeType, lasti: int) -> str | None:
    """The source text of the first argument of a call; None for anything else."""
    located = locate(code, lasti)
    if located is None or not isinstance(located.node, ast.Call) or not located.node.args:
        return None
    first = located.node.args[0]
    return None if isinstance(first, ast.Starred) else located.syntax.line_of(span_of(first))


def _texts(syntax: Syntax, operands: _Operands) -> dict[str, str]:
    texts = {name: syntax.line_of(span_of(node)) for name, node in operands.items()}
    return {name: text for name, text in texts.items() if text}


def _operands(syntax: Syntax, node: ast.AST, operator: _Operator) -> _Operands:
    match node:
        case ast.BinOp(left=left, op=symbol, right=right):
            return _binary(syntax, operator, spelling.SYMBOLS[type(symbol)], left, right)
        case ast.AugAssign(target=left, op=symbol, value=right):
            name = spelling.SYMBOLS[type(symbol)]
            if operator.in_place and operator.name == name:
                return _named(operator, left, right)
            return _binary(syntax, operator, name, left, right)
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            return _compared(syntax, operator, spelling.COMPARISONS.get(type(comparison)), left, right)
        case ast.UnaryOp(op=symbol, operand=operand) if operator.name in spelling.UNARY.get(type(symbol), ()):
            return {"self": operand}
        case ast.Subscript():
            return _subscript(syntax, operator, node)
        case ast.Call():
            return _called(syntax, operator, node)
        case _:
            return {}


def _named(operator: _Operator, *values: ast.expr) -> _Operands:
    return dict(zip(operator.arguments, values, strict=False))


def _binary(syntax: Syntax, operator: _Operator, name: str, left: ast.expr, right: ast.expr) -> _Operands:
    if operator.name == name:
        return _ordered(syntax, operator, left, right)
    match name, operator.name:
        case "sub", "rsub":
            return _named(operator, right, left)
        case "div", "reciprocal":  # a number by a tensor: the reciprocal, times the number
            return {"self": right}
        case "div", "mul":
            return {"other": left}
        case "matmul", _:
            return _dispatched(operator, "matmul", {"input": left, "other": right})
        case _:
            return {}


def _compared(syntax: Syntax, operator: _Operator, name: str | None, left: ast.expr, right: ast.expr) -> _Operands:
    if name is None:
        return {}
    if operator.name == name:
        return _ordered(syntax, operator, left, right)
    return _named(operator, right, left) if spelling.REFLECTED.get(name) == operator.name else {}


def _ordered(syntax: Syntax, operator: _Operator, left: ast.expr, right: ast.expr) -> _Operands:
    """Both sides, in the order in which the dispatcher was given them."""
    if operator.name not in TORCH.having("commutative") or (
        operator.numbers is not None and "other" not in operator.numbers
    ):
        return _named(operator, left, right)
    swapped, straight = _is_number(syntax, left), _is_number(syntax, right)
    if swapped == straight:
        return {}
    return _named(operator, right, left) if swapped else _named(operator, left, right)


def _is_number(syntax: Syntax, node: ast.expr) -> bool:
    """Whether an expression is a Python number whatever the names in it hold."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (int, float, complex))
        case ast.UnaryOp(operand=operand):
            return _is_number(syntax, operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(syntax, left) and _is_number(syntax, right)
        case ast.Call(func=ast.Name(id=name)):
            return name in ("float", "int", "len") and name not in syntax.assigned_names
        case ast.Call(func=ast.Attribute() as inner) | (ast.Attribute() as inner):
            return isinstance(inner.value, ast.Name) and syntax.imports.get(inner.value.id) == "math"
        case _:
            return False


def _subscript(syntax: Syntax, operator: _Operator, node: ast.Subscript) -> _Operands:
    if isinstance(node.ctx, ast.Load):
        # of `x[i, j]` only the first step sees x itself
        whole = not isinstance(node.slice, ast.Tuple) and operator.name in ("index", "select", "slice")
        return {"self": node.value} if whole else {}
    place: dict[str, tuple[ast.expr, str]] = {
        "copy": (node, "src"),
        "fill": (node, "value"),
        "index_put": (node.value, "values"),
    }
    if operator.name not in place:
        return {}
    target, name = place[operator.name]
    parent = syntax.parents[node]
    return {"self": target, name: parent.value} if isinstance(parent, ast.Assign) else {}


def _called(syntax: Syntax, operator: _Operator, call: ast.Call) -> _Operands:
    function = _function(syntax, call.func)
    if function is not None:
        name, values = function, call.args
    elif isinstance(call.func, ast.Attribute) and _is_value(syntax, call.func.value):
        name, values = spelling.canonical(call.func.attr), [call.func.value, *call.args]
    else:
        return {}
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    parameters, operators = spelling.DISPATCHED.get(name, ((), {}))
    if name != operator.name or operator.name in operators:
        if function is None and (name not in TORCH.having("known-method") or len(values) > len(parameters)):
            return {}
        return _dispatched(operator, name, _bound(parameters, values, keywords))
    return _same(operator, values, keywords, method=function is None)


def _same(operator: _Operator, values: list[ast.expr], keywords: _Operands, *, method: bool) -> _Operands:
    """The arguments of a call that names the operator: as its schema orders them."""
    if len(values) > len(operator.arguments):
        return {}
    if "input" in keywords and "input" not in operator.arguments:
        keywords["self"] = keywords.pop("input")
    bound = _bound(operator.arguments, values, keywords)
    if method and not _is_own(operator, values, bound):
        return {}
    return {name: value for name, value in bound.items() if name in spelling.OPERANDS}


def _is_own(operator: _Operator, values: list[ast.expr], bound: _Operands) -> bool:
    """Whether a call of an operator's name reads as a tensor's method.

    ``layers.softmax(x)`` may call a module that merely is named so, and ``xp.clamp(x, 0)`` a function: what the
    tensor's method takes as a setting must look like one.
    """
    if len(values) > spelling.MOST_POSITIONAL.get(operator.name, len(values)):
        return False
    takes = operator.name in TORCH.having("operand-method")
    operands = spelling.OPERANDS if takes and operator.name not in spelling.OPTIONAL else frozenset[str]()
    settings = [value for name, value in bound.items() if name not in operands and value in values[1:]]
    return all(map(_is_setting, settings))


def _bound(names: Sequence[str], values: list[ast.expr], keywords: _Operands) -> _Operands:
    starred = next((i for i, value in enumerate(values) if isinstance(value, ast.Starred)), len(values))
    return dict(zip(names, values[:starred], strict=False)) | {n: v for n, v in keywords.items() if n in names}


def _dispatched(operator: _Operator, function: str, bound: _Operands) -> _Operands:
    """What a function dispatches on its own parameters."""
    arguments = spelling.DISPATCHED[function][1].get(operator.name, {}) if function in spelling.DISPATCHED else {}
    if (function, operator.name) == ("matmul", "mm") and _is_matrix(bound.get("other")):
        arguments = {"self": "input", "mat2": "other"}
    return {name: bound[parameter] for name, parameter in arguments.items() if parameter in bound}


def _is_matrix(node: ast.expr | None) -> bool:
    """Whether an expression can only be a matrix: ``w.T``, ``w.t()``."""
    match node:
        case ast.Attribute(attr="T") | ast.Call(func=ast.Attribute(attr="t"), args=[]):
            return True
        case _:
            return False


def _function(syntax: Syntax, callee: ast.expr) -> str | None:
    """The operator that a function of torch's is named after; None for a method, or a function of somebody else's."""
    name = function_of(syntax, callee)
    return None if name is None else spelling.canonical(name)


def _is_value(syntax: Syntax, receiver: ast.expr) -> bool:
    """Whether what a method is called on may be a tensor: no module, and no object on its own method's behalf."""
    match receiver:
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")):
            return False
        case _:
            names = dotted(receiver)
            return names is None or names[0] not in syntax.imports


def _is_setting(node: ast.expr) -> bool:
    """Whether an argument is plainly no tensor: a literal, or a name that says so."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return _is_setting(operand)
        case ast.Tuple(elts=entries) | ast.List(elts=entries):
            return all(map(_is_setting, entries))
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.endswith(("dim", "dims", "axis", "dtype")) or name.startswith(("float", "bfloat"))
        case _:
            return False
