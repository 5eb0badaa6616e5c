"""A replacement as new nodes; operators that ONNX lacks are composed of those that it has."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import onnx_ir as ir

from whynan.fixes.onnx.build import Builder, Made, Unwritable
from whynan.floats import format_of
from whynan.ops.onnx import FUNCTIONS, REDUCTIONS
from whynan.ops.signatures import canonical
from whynan.ops.spelling import COMPARISONS, SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whynan.fixes.onnx.read import Bound


# -- Operators that ONNX does not have, or has only where they overflow, made of those that it has ---------------------


@dataclass(frozen=True, slots=True)
class Call:
    """An operator on its arguments; ``named`` are those given by keyword."""

    operator: str
    arguments: tuple[ast.expr, ...]
    named: Mapping[str, ast.expr]


def call_of(node: ast.expr) -> Call | None:
    """What a part of a replacement asks for, by a call or a symbol; None for any other expression."""
    match node:
        case ast.BinOp(left=left, op=symbol, right=right):
            name = SYMBOLS[type(symbol)]
            return Call(_LOGICAL.get(name, name), (left, right), {})
        case ast.Compare(left=left, ops=[symbol], comparators=[right]) if type(symbol) in COMPARISONS:
            return Call(COMPARISONS[type(symbol)], (left, right), {})
        case ast.UnaryOp(op=ast.USub() | ast.Invert() as symbol, operand=operand):
            return Call("neg" if isinstance(symbol, ast.USub) else "logical_not", (operand,), {})
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            return Call(canonical(name)[0], tuple(arguments), {str(k.arg): k.value for k in keywords})
        case _:
            return None


_LOGICAL: Final = {"bitwise_and": "logical_and", "bitwise_or": "logical_or"}


class Writing(Protocol):
    """What writes the arguments of a call."""

    builder: Builder

    def made(self, expression: ast.expr) -> Made:
        """The value or the number of an expression."""
        ...

    def value(self, expression: ast.expr) -> ir.Value:
        """The value of an expression."""
        ...

    def axes(self, call: Call) -> tuple[tuple[int, ...] | None, bool]:
        """The axes of a call and whether they are kept."""
        ...


def _where(write: Writing, call: Call) -> Made:
    return write.builder.where(*(write.made(one) for one in call.arguments))


def _clamped(write: Writing, call: Call) -> Made:
    given = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}[call.operator]
    limits = {**dict(zip(given, call.arguments[1:], strict=False)), **call.named}
    low, high = (write.made(limits[name]) if name in limits else None for name in ("min", "max"))
    return write.builder.limited(write.made(call.arguments[0]), low, high)


def _square(write: Writing, call: Call) -> Made:
    inner = write.made(call.arguments[0])
    return write.builder.op("Mul", inner, inner)


def _rsqrt(write: Writing, call: Call) -> Made:
    return write.builder.op("Reciprocal", write.builder.op("Sqrt", write.made(call.arguments[0])))


def _of_log(base: float) -> Callable[[Writing, Call], Made]:
    def written(write: Writing, call: Call) -> Made:
        return write.builder.op("Div", write.builder.op("Log", write.made(call.arguments[0])), math.log(base))

    return written


def _logsigmoid(write: Writing, call: Call) -> Made:
    build = write.builder
    return build.op("Neg", build.op("Softplus", build.op("Neg", write.made(call.arguments[0]))))


def _log1p(write: Writing, call: Call) -> Made:
    """log(u) * x / (u - 1) with u = 1 + x, which mends the rounding of u; x itself where u is 1 (Kahan)."""
    build, x = write.builder, write.value(call.arguments[0])
    above = build.op("Add", x, 1.0)
    added = build.op("Sub", above, 1.0)
    nothing = build.compared("eq", added, 0.0)
    huge = build.compared("gt", x, 1.0)
    plain = build.where(build.op("Or", nothing, huge), 1.0, added)
    ratio = build.where(huge, 1.0, build.op("Div", x, plain))
    return build.where(nothing, x, build.op("Mul", build.op("Log", above), ratio))


def _expm1(write: Writing, call: Call) -> Made:
    """(u - 1) * x / log(u) with u = exp(x), which mends the rounding of u; exp(x) - 1 where that is exact (Kahan)."""
    build, x = write.builder, write.value(call.arguments[0])
    grown = build.op("Exp", x)
    less = build.op("Sub", grown, 1.0)
    nothing = build.compared("eq", less, 0.0)
    far = build.compared("gt", build.op("Abs", x), 1.0)
    safe = build.where(build.op("Or", nothing, far), 2.0, grown)
    mended = build.op("Mul", less, build.op("Div", x, build.op("Log", safe)))
    return build.where(nothing, x, build.where(far, less, mended))


def _logaddexp(write: Writing, call: Call) -> Made:
    """The greater, and softplus of minus the distance; softplus itself where one is 0."""
    build = write.builder
    left, right = (write.made(one) for one in call.arguments)
    if not isinstance(right, ir.Value) and right == 0:
        return build.op("Softplus", left)
    if not isinstance(left, ir.Value) and left == 0:
        return build.op("Softplus", right)
    greater = build.op("Max", left, right)
    apart = build.op("Abs", build.op("Sub", left, right))
    return build.op("Add", greater, build.op("Softplus", build.op("Neg", apart)))


def _logsumexp(write: Writing, call: Call) -> Made:
    """With the greatest finite element taken out of the sum."""
    build, x = write.builder, write.value(call.arguments[0])
    axes, keep = write.axes(call)
    most = build.reduced("ReduceMax", x, axes, keep=True)
    out = build.limited(most, _least(build), _most(build))
    total = build.reduced("ReduceSum", build.op("Exp", build.op("Sub", x, out)), axes, keep=True)
    found = build.op("Add", build.op("Log", total), out)
    return found if keep else build.squeezed(found, axes)


def _norm(write: Writing, call: Call) -> Made:
    """The root of the sum of squares of the row over its greatest magnitude, times that: nothing overflows."""
    build, x = write.builder, write.value(call.arguments[0])
    if len(call.arguments) > 1:
        # torch.linalg.vector_norm takes the order before the axes
        order = write.made(call.arguments[1])
        if order != 2:
            raise Unwritable("only the norm of order 2 is written")
        call = Call(call.operator, (call.arguments[0], *call.arguments[2:]), call.named)
    axes, keep = write.axes(call)
    most = build.reduced("ReduceMax", build.op("Abs", x), axes, keep=True)
    scale = build.where(build.compared("eq", most, 0.0), 1.0, most)
    shares = build.op("Div", x, scale)
    root = build.op("Sqrt", build.reduced("ReduceSum", build.op("Mul", shares, shares), axes, keep=True))
    found = build.op("Mul", root, scale)
    return found if keep else build.squeezed(found, axes)


def _hypot(write: Writing, call: Call) -> Made:
    build = write.builder
    left, right = (build.op("Abs", write.made(one)) for one in call.arguments)
    most, least = build.op("Max", left, right), build.op("Min", left, right)
    ratio = build.op("Div", least, build.where(build.compared("eq", most, 0.0), 1.0, most))
    return build.op("Mul", most, build.op("Sqrt", build.op("Add", build.op("Mul", ratio, ratio), 1.0)))


def _copysign(write: Writing, call: Call) -> Made:
    build = write.builder
    size = build.op("Abs", write.made(call.arguments[0]))
    return build.where(_negative(build, write.value(call.arguments[1])), build.op("Neg", size), size)


def _negative(build: Builder, value: Made) -> ir.Value:
    """Whether a number is negative, -0.0 included: its reciprocal tells."""
    below = build.compared("lt", value, 0.0)
    return build.op("Or", below, build.compared("lt", build.op("Reciprocal", value), 0.0))


def atan2(build: Builder, y: Made, x: Made) -> ir.Value:
    """The angle of a point: the arc tangent of the lesser over the greater, turned into its octant."""
    height, width = build.op("Abs", y), build.op("Abs", x)
    most, least = build.op("Max", height, width), build.op("Min", height, width)
    same = build.compared("eq", height, width)
    ratio = build.op("Div", least, build.where(build.op("Or", build.compared("eq", most, 0.0), same), 1.0, most))
    # of two infinities too; of two zeros the angle is 0
    ratio = build.where(build.op("And", same, build.compared("gt", most, 0.0)), 1.0, ratio)
    steep = build.compared("gt", height, width)
    angle = build.op("Atan", ratio)
    angle = build.where(steep, build.op("Sub", math.pi / 2, angle), angle)
    angle = build.where(_negative(build, x), build.op("Sub", math.pi, angle), angle)
    # not by Neg, which ONNX Runtime computes as a difference: of 0 it is 0, not -0
    return build.op("Mul", angle, build.where(_negative(build, y), build.value(-1.0), build.value(1.0)))


def _atan2(write: Writing, call: Call) -> Made:
    return atan2(write.builder, *(write.value(one) for one in call.arguments))


def _finite(write: Writing, call: Call) -> Made:
    build, x = write.builder, write.value(call.arguments[0])
    # the difference of an infinity with itself is no number
    there = build.compared("eq", build.op("Sub", x, x), 0.0)
    return there if call.operator == "isfinite" else _infinite(build, x)


def _infinite(build: Builder, x: ir.Value) -> ir.Value:
    return build.compared("gt", build.op("Abs", x), _most(build))


def _alike(value: float) -> Callable[[Writing, Call], Made]:
    def written(_write: Writing, _call: Call) -> Made:
        return value

    return written


def _itself(write: Writing, call: Call) -> Made:
    return write.made(call.arguments[0])


def _cast(dtype: ir.DataType) -> Callable[[Writing, Call], Made]:
    def written(write: Writing, call: Call) -> Made:
        return write.builder.cast(write.value(call.arguments[0]), dtype)

    return written


def _type_as(write: Writing, call: Call) -> Made:
    value, other = (write.value(one) for one in call.arguments)
    return write.builder.cast(value, other.dtype or write.builder.dtype)


def _masked_fill(write: Writing, call: Call) -> Made:
    x, asked, number = (write.made(one) for one in call.arguments)
    return write.builder.where(asked, number, x)


def _product(write: Writing, call: Call) -> Made:
    return write.builder.op("MatMul", *(write.made(one) for one in call.arguments))


def _xlogy(write: Writing, call: Call) -> Made:
    build = write.builder
    x, y = (write.value(one) for one in call.arguments)
    nothing = build.compared("eq", x, 0.0)
    return build.where(nothing, 0.0, build.op("Mul", x, build.op("Log", build.where(nothing, 1.0, y))))


def _most(build: Builder) -> float:
    return format_of(build.dtype.numpy().name).max


def _least(build: Builder) -> float:
    return -_most(build)


COMPOSED: Final[dict[str, Callable[[Writing, Call], Made]]] = {
    "where": _where,
    "clamp": _clamped,
    "clamp_min": _clamped,
    "clamp_max": _clamped,
    "square": _square,
    "rsqrt": _rsqrt,
    "log2": _of_log(2),
    "log10": _of_log(10),
    "logsigmoid": _logsigmoid,
    "log1p": _log1p,
    "expm1": _expm1,
    "logaddexp": _logaddexp,
    "logsumexp": _logsumexp,
    "vector_norm": _norm,
    "hypot": _hypot,
    "copysign": _copysign,
    "atan2": _atan2,
    "isfinite": _finite,
    "isinf": _finite,
    "zeros_like": _alike(0.0),
    "ones_like": _alike(1.0),
    "detach": _itself,
    "xlogy": _xlogy,
    "float": _cast(ir.DataType.FLOAT),
    "double": _cast(ir.DataType.DOUBLE),
    "type_as": _type_as,
    "masked_fill": _masked_fill,
    "mm": _product,
    "bmm": _product,
    "mv": _product,
    "dot": _product,
}
"""By the name of the operator in the language of fixes."""


# -- A replacement of a fix as new nodes -------------------------------------------------------------------------------


_OVERFLOWING: Final = ("logsumexp", "vector_norm")


class Writer:
    """Writes expressions whose variables are known."""

    def __init__(self, builder: Builder, bound: Mapping[str, Bound]) -> None:
        self.builder = builder
        self._bound = bound
        self._known: dict[str, Made] = {}

    def value(self, expression: ast.expr) -> ir.Value:
        """The value of an expression; raises ``Unwritable``."""
        return self.builder.value(self.made(expression))

    def made(self, expression: ast.expr) -> Made:
        """The value or the number of an expression; what occurs twice is computed once."""
        key = ast.dump(expression)
        if key not in self._known:
            self._known[key] = self._write(expression)
        return self._known[key]

    def _write(self, expression: ast.expr) -> Made:
        match expression:
            case ast.Name(id=name):
                found = self._bound.get(name)
                if isinstance(found, ir.Value | bool | int | float):
                    return found
                raise Unwritable(f"{name} is no value there")
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Attribute(value=ast.Call(func=ast.Name(id="finfo"), args=[of]), attr=which):
                return limit(self._dtype(of), which)
            case _:
                call = call_of(expression)
                if call is None:
                    raise Unwritable(f"{ast.unparse(expression)} is no value")
                return self._call(call)

    def _dtype(self, of: ast.expr) -> ir.DataType:
        found = self._bound.get(of.id) if isinstance(of, ast.Name) else None
        known = found.dtype if isinstance(found, ir.Value) else None
        return known if known is not None and known.is_floating_point() else self.builder.dtype

    def _call(self, call: Call) -> Made:
        name, arguments, build = call.operator, call.arguments, self.builder
        op = FUNCTIONS.get(name)
        if name in COMPARISONS.values():
            return build.compared(name, *(self.made(one) for one in arguments))
        if name in ("softmax", "log_softmax"):
            return build.op(op or "", self.made(arguments[0]), attributes={"axis": self._axis(call)})
        if op in REDUCTIONS and name not in _OVERFLOWING:
            axes, keep = self.axes(call)
            return build.reduced(op, self.made(arguments[0]), axes, keep=keep)
        if name in COMPOSED:
            return COMPOSED[name](self, call)
        if op is None:
            raise Unwritable(f"ONNX has no {name}")
        made = [self.made(one) for one in arguments]
        if name in _PLAIN and not any(isinstance(one, ir.Value) for one in made):
            return float(_PLAIN[name](*(float(one) for one in made if not isinstance(one, ir.Value))))
        return build.op(op, *made)

    def _axis(self, call: Call) -> int:
        axes, _ = self.axes(call)
        if axes is None or len(axes) != 1:
            raise Unwritable("the axis is not known")
        return axes[0]

    def axes(self, call: Call) -> tuple[tuple[int, ...] | None, bool]:
        """The axes of a reduction, None for all, and whether they are kept."""
        rest = call.arguments[1:]
        dim = call.named.get("dim", rest[0] if rest else None)
        keep = call.named.get("keepdim", rest[1] if len(rest) > 1 else None)
        axes, kept = self._said(dim), self._said(keep)
        if isinstance(axes, ir.Value | float):
            raise Unwritable("the axes are not known")
        return (axes,) if isinstance(axes, int) else axes, bool(kept)

    def _said(self, of: ast.expr | None) -> Bound:
        if isinstance(of, ast.Name):
            return self._bound.get(of.id)
        return None if of is None else ast.literal_eval(of)


_PLAIN: Final[Mapping[str, Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "neg": np.negative,
}  # fmt: skip
"""What is computed of numbers alone."""


def limit(dtype: ir.DataType, which: str) -> float:
    """A limit of a floating-point dtype: ``tiny``, ``eps``, ``max``, ``min``."""
    known = format_of(dtype.numpy().name)
    limits = {"tiny": known.tiny, "smallest_normal": known.tiny, "eps": known.eps, "max": known.max, "min": -known.max}
    if which not in limits:
        raise Unwritable(f"finfo has no {which}")
    return limits[which]
