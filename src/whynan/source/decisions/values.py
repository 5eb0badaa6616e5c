"""What is known of an expression once one number in it is known: three-valued, and without running anything."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import operator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from whynan.source.exported_expressions import callee_name
from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FunctionType

    Names = Mapping[str, Any]


class Value(NamedTuple):
    """What is known of an expression: its value, if it is, and whether the number that was read leads to it."""

    known: bool
    value: Any = None
    led: bool = False


Flags = dict[tuple[int, str], Value]
"""What has been stored because of the number, by the identity of an object and the name of its attribute."""
UNKNOWN: Final = Value(known=False)
LED: Final = Value(known=False, led=True)
TESTS: Final[Mapping[str, Callable[[float], bool]]] = {
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "isposinf": lambda number: number == math.inf,
    "isneginf": lambda number: number == -math.inf,
}
"""Tests of finiteness, by the name that they have in ``math``, NumPy and torch."""
_COMPARED: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_COMPUTED: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Mod: lambda a, b: a % b,
}
_SAME: Final = frozenset(
    "float bool any all item detach cpu numpy mean sum max tolist squeeze double asarray array abs round".split()
)
"""Calls that give NaN or Inf, or what a test has said, as it is."""
Comprehension: TypeAlias = ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp
SETTLED: Final = frozenset(("any", "all", "sum"))
"""Calls on many numbers that one of them may settle."""
_KEPT: Final = frozenset("values items list tuple set sorted dict".split())
"""Calls that give all that a container holds."""
_PLAIN: Final = (int, float, bool, str, type(None))
ABSENT: Final = object()


class _Container(NamedTuple):
    """A container that holds the number."""

    number: Value


def container_value(number: Value) -> Value:
    """A list, tuple, set or dict of which one element is known."""
    return Value(known=False, value=_Container(number), led=True)


def fold_builtin(name: str | None, element: Value) -> Value:
    """``any``, ``all`` or ``sum`` of numbers of which one is known, where it settles them."""
    settles = {"any": bool(element.value), "all": not element.value, "sum": element.value != element.value}
    return element if element.known and settles.get(name or "", False) else LED


def finiteness_test_operand(call: ast.Call) -> ast.expr | None:
    """What a test of finiteness is of: its argument, or the object whose method it is."""
    if call.args:
        return call.args[0]
    return call.func.value if isinstance(call.func, ast.Attribute) else None


class Values:
    """What is known of the expressions of one function, and of the names that it has given values to since.

    `reads`: by the identity of an expression, what was read there. `names`, `others`: what a name was, looked up in
    this order. `calls`: what a call of the program's own functions gives that the number is handed to. `flags`: the
    attributes of objects that other functions read, too.
    """

    def __init__(
        self,
        reads: dict[int, Value],
        names: Names,
        others: Names,
        calls: Callable[[ast.Call], Value],
        flags: Flags,
    ) -> None:
        self._reads = reads
        self._equal: dict[str, Value] = {}
        """What else is written as what was read, until something is stored."""
        self._flags = flags
        self._stored: dict[str, Value] = {}
        self._names, self._others = names, others
        self._calls = calls

    def equal_to(self, read: ast.expr, value: Value) -> None:
        """Take what is written as a read is for the same number: it is read again, and nothing has changed it."""
        calls = [callee_name(node) for node in ast.walk(read) if isinstance(node, ast.Call)]
        if type(value.value) is float and all(name in _SAME for name in calls):
            self._equal[ast.dump(read)] = value

    def bind(self, name: str, value: Value) -> None:
        """Give a name a value."""
        self._stored[name] = value

    def store(self, target: ast.expr, value: Value) -> None:
        """Assign to a target."""
        self._equal.clear()
        match target:
            case ast.Name() | ast.Attribute() | ast.Subscript():
                self._stored[ast.unparse(target)] = value
                if isinstance(target, ast.Attribute) and (owner := self.object(target.value)) is not ABSENT:
                    self._flags[id(owner), target.attr] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.store(part, UNKNOWN)
            case _:
                pass

    def forget(self, node: ast.AST, *, but_constants: bool = False) -> None:
        """Names that code may store which is not followed; `but_constants`: not those that it gives constants alone."""
        kept = _given_constants(node) if but_constants else frozenset[str]()
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id not in kept:
                self._stored[each.id] = UNKNOWN

    def function(self, node: ast.Call) -> FunctionType | None:
        """The function of the program's own that a call is of."""
        found = self.object(node.func)
        if found is ABSENT and isinstance(node.func, ast.Attribute):
            owner: object = self.object(node.func.value)
            found = inspect.getattr_static(owner.__class__, node.func.attr, ABSENT)
        # a static method, or one of the class
        found = getattr(found, "__func__", found)
        if found is not ABSENT and not inspect.isroutine(found) and not isinstance(found, type):
            called_object: object = found
            found = inspect.getattr_static(called_object.__class__, "__call__", ABSENT)
        if not inspect.isfunction(found) or owner_of(found.__code__.co_filename) is not Owner.USER:
            return None
        return found

    def evaluate(self, node: ast.expr) -> Value:
        """What is known of an expression."""
        if id(node) in self._reads:
            return self._reads[id(node)]
        if isinstance(node, ast.Call | ast.Name | ast.Attribute) and (known := self._equal.get(ast.dump(node))):
            return known
        match node:
            case ast.Constant(value=value):
                return Value(known=True, value=value)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._lookup(node)
            case ast.NamedExpr(target=target, value=value):
                found = self.evaluate(value)
                self.store(target, found)
                return found
            case ast.UnaryOp(op=op, operand=operand):
                return _unary_value(op, self.evaluate(operand))
            case ast.BoolOp(op=op, values=values):
                return self._bool_op_value(values, either=isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self._comparison_value([left, *rights], ops)
            case ast.BinOp(left=left, op=op, right=right):
                return arithmetic_value(op, self.evaluate(left), self.evaluate(right))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                asked = self.evaluate(test)
                found = self.evaluate(body if asked.value else orelse) if asked.known else UNKNOWN
                return found._replace(led=found.led or asked.led)
            case ast.Call():
                return self._call_value(node)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return self._container_of(parts)
            case ast.Dict(values=parts):
                return self._container_of(parts)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self._comprehension_value(node)
            case _:
                return UNKNOWN

    def element(self, target: ast.expr, container: Value) -> bool:
        """Bind the target of a loop to the number that a container holds; whether it holds one."""
        if not isinstance(container.value, _Container):
            return False
        # of pairs, as `items` gives them, the second is the number
        last = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else target
        self.store(last, container.value.number)
        return True

    def _container_of(self, parts: list[ast.expr]) -> Value:
        number = next((found for part in parts if (found := self.evaluate(part)).known and found.led), None)
        return UNKNOWN if number is None else container_value(number)

    def _comprehension_value(self, node: Comprehension) -> Value:
        """What a comprehension over a container that holds the number holds itself."""
        first = node.generators[0]
        if not self.element(first.target, self.evaluate(first.iter)):
            return UNKNOWN
        found = self.evaluate(node.value if isinstance(node, ast.DictComp) else node.elt)
        return container_value(found) if found.known and found.led else UNKNOWN

    def _lookup(self, node: ast.Name | ast.Attribute | ast.Subscript) -> Value:
        name = ast.unparse(node)
        if name in self._stored:
            return self._stored[name]
        if isinstance(node, ast.Attribute) and self._flags:
            flag = self._flags.get((id(self.object(node.value)), node.attr))
            if flag is not None:
                return flag
        value = self.object(node)
        return Value(known=True, value=value) if type(value) in _PLAIN else UNKNOWN

    def object(self, node: ast.expr) -> Any:
        """The object that a name or an attribute stands for, without running anything of the program's."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, self._others.get(name, ABSENT))
            case ast.Attribute(value=value, attr=name):
                owner = self.object(value)
                return ABSENT if owner is ABSENT else inspect.getattr_static(owner, name, ABSENT)
            case _:
                return ABSENT

    def _bool_op_value(self, values: list[ast.expr], *, either: bool) -> Value:
        """``or``, which is that of `either` part, and ``and``: one part may settle all."""
        parts = [self.evaluate(each) for each in values]
        settled = [part for part in parts if part.known and bool(part.value) is either]
        if settled:
            return next((part for part in settled if part.led), settled[0])
        if all(part.known for part in parts):
            return parts[-1]._replace(led=any(part.led for part in parts))
        return UNKNOWN

    def _comparison_value(self, sides: list[ast.expr], ops: list[ast.cmpop]) -> Value:
        parts = [self.evaluate(each) for each in sides]
        found = [_compared(op, *pair) for op, pair in zip(ops, itertools.pairwise(parts), strict=True)]
        if (fails := next((one for one in found if one.known and not one.value), None)) is not None:
            return fails
        return found[-1]._replace(led=any(one.led for one in found)) if all(one.known for one in found) else UNKNOWN

    def _call_value(self, node: ast.Call) -> Value:
        name = callee_name(node)
        if name in TESTS:
            argument = finiteness_test_operand(node)
            found = UNKNOWN if argument is None else self.evaluate(argument)
            # of what is already an answer, it is the same one
            is_number = found.known and type(found.value) in (int, float)
            return found._replace(value=TESTS[name](found.value)) if is_number else found
        given = [self.evaluate(each) for each in (*node.args, *(keyword.value for keyword in node.keywords))]
        owner = self.evaluate(node.func.value) if isinstance(node.func, ast.Attribute) else UNKNOWN
        led = next((each for each in (owner, *given) if each.led), None)
        if led is None:
            return UNKNOWN
        if isinstance(led.value, _Container):
            return led if name in _KEPT else fold_builtin(name, led.value.number) if name in SETTLED else LED
        if name == "logical_not" and led.known:
            return led._replace(value=not led.value)
        return led if name in _SAME else self._calls(node)


def _given_constants(node: ast.AST) -> frozenset[str]:
    """The names that code gives constants, and nothing else but what it adds to them."""
    constant, other = set[str](), set[str]()
    for each in ast.walk(node):
        match each:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()) | ast.AugAssign(target=ast.Name(id=name))
            ):
                constant.add(name)
            case ast.Assign(targets=targets):
                other |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            case (
                ast.For(target=target)
                | ast.comprehension(target=target)
                | ast.NamedExpr(target=target)
                | ast.AnnAssign(target=target)
            ):
                other |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            case _:
                pass
    return frozenset(constant - other)


def arithmetic_value(op: ast.operator, left: Value, right: Value) -> Value:
    """A sum or a product: NaN stays NaN, Inf in a sum Inf, whatever is not known of the other side."""
    led = left.led or right.led
    if not led and not (left.known and right.known):
        return UNKNOWN
    try:
        if left.known and right.known and type(op) in _COMPUTED:
            return Value(known=True, value=_COMPUTED[type(op)](left.value, right.value), led=led)
    except (ArithmeticError, TypeError, ValueError):
        return Value(known=False, led=led)
    own = left if left.led else right
    lasts = own.known and isinstance(own.value, float)
    return own if lasts and (own.value != own.value or isinstance(op, (ast.Add, ast.Sub))) else LED


def _unary_value(op: ast.unaryop, value: Value) -> Value:
    if value.known and isinstance(op, ast.Not):
        return value._replace(value=not value.value)
    if value.known and isinstance(op, ast.USub) and isinstance(value.value, int | float):
        return value._replace(value=-value.value)
    if value.known and isinstance(op, ast.Invert) and isinstance(value.value, bool):
        return value._replace(value=not value.value)
    return Value(known=False, led=value.led)


def _compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    """A comparison; beside NaN or Inf what is not known is taken for a number."""
    if type(op) not in _COMPARED or not (left.known or right.known):
        return UNKNOWN
    led = left.led or right.led
    if not (left.known and right.known):
        own = left if left.known else right
        if not own.led or not isinstance(own.value, float) or math.isfinite(own.value):
            return UNKNOWN
    try:
        sides = (side.value if side.known else 0.0 for side in (left, right))
        return Value(known=True, value=bool(_COMPARED[type(op)](*sides)), led=led)
    except TypeError:
        return UNKNOWN
