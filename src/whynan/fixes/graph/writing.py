"""A replacement of a fix as new nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import onnx_ir as ir

from whynan.fixes.graph.building import Builder, Made, Unwritable
from whynan.fixes.graph.compositions import COMPOSED
from whynan.fixes.graph.language import Call, Expression, Limit, Number, Variable
from whynan.fixes.graph.operators import BINARY, NORMALISED, REDUCTIONS, UNARY
from whynan.floats import format_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.fixes.graph.reading import Bound

_COMPARISONS: Final = ("lt", "le", "gt", "ge", "eq", "ne")
_OVERFLOWING: Final = ("logsumexp", "norm", "vector_norm")


class Writer:
    """Writes expressions whose variables are known."""

    def __init__(self, builder: Builder, bound: Mapping[str, Bound]) -> None:
        self.builder = builder
        self._bound = bound
        self._known: dict[Expression, Made] = {}

    def value(self, expression: Expression) -> ir.Value:
        """The value of an expression; raises ``Unwritable``."""
        return self.builder.value(self.made(expression))

    def made(self, expression: Expression) -> Made:
        """The value or the number of an expression; what occurs twice is computed once."""
        if expression not in self._known:
            self._known[expression] = self._write(expression)
        return self._known[expression]

    def _write(self, expression: Expression) -> Made:
        match expression:
            case Variable(name):
                found = self._bound.get(name)
                if isinstance(found, ir.Value | bool | int | float):
                    return found
                raise Unwritable(f"{name} is no value there")
            case Number(value) if value is not None:
                return value
            case Limit(of, which):
                return limit(self._dtype(of), which)
            case Call():
                return self._call(expression)
            case _:
                raise Unwritable("None is no value")

    def _dtype(self, of: Expression) -> ir.DataType:
        found = self._bound.get(of.name) if isinstance(of, Variable) else None
        known = found.dtype if isinstance(found, ir.Value) else None
        return known if known is not None and known.is_floating_point() else self.builder.dtype

    def _call(self, call: Call) -> Made:
        name, arguments, build = call.operator, call.arguments, self.builder
        if name in _COMPARISONS:
            return build.compared(name, *(self.made(one) for one in arguments))
        if name in NORMALISED:
            return build.op(NORMALISED[name], self.made(arguments[0]), attributes={"axis": self._axis(call)})
        if name in REDUCTIONS and name not in _OVERFLOWING:
            axes, keep = self.axes(call)
            return build.reduced(REDUCTIONS[name], self.made(arguments[0]), axes, keep=keep)
        if name in COMPOSED:
            return COMPOSED[name](self, call)
        if name in UNARY and len(arguments) == 1:
            inner = self.made(arguments[0])
            return -inner if name == "neg" and isinstance(inner, int | float) else build.op(UNARY[name], inner)
        if name in BINARY and len(arguments) == 2:
            return self._binary(name, *(self.made(one) for one in arguments))
        raise Unwritable(f"ONNX has no {name}")

    def _binary(self, name: str, left: Made, right: Made) -> Made:
        if isinstance(left, ir.Value) or isinstance(right, ir.Value):
            return self.builder.op(BINARY[name], left, right)
        operations = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power}
        if name not in operations:
            raise Unwritable(f"{name} of two numbers")
        return float(operations[name](float(left), float(right)))

    def _axis(self, call: Call) -> int:
        axes, _ = self.axes(call)
        if axes is None or len(axes) != 1:
            raise Unwritable("the axis is not known")
        return axes[0]

    def axes(self, call: Call) -> tuple[tuple[int, ...] | None, bool]:
        """The axes of a reduction, None for all, and whether they are kept."""
        named: dict[str, Expression] = dict(call.named)
        rest = call.arguments[1:]
        dim = named.get("dim", rest[0] if rest else None)
        keep = named.get("keepdim", rest[1] if len(rest) > 1 else None)
        axes, kept = self._said(dim), self._said(keep)
        if isinstance(axes, ir.Value | float):
            raise Unwritable("the axes are not known")
        return (axes,) if isinstance(axes, int) else axes, bool(kept)

    def _said(self, of: Expression | None) -> Bound:
        if isinstance(of, Variable):
            return self._bound.get(of.name)
        return of.value if isinstance(of, Number) else None


def limit(dtype: ir.DataType, which: str) -> float:
    """A limit of a floating-point dtype: ``tiny``, ``eps``, ``max``, ``min``."""
    known = format_of(dtype.numpy().name)
    limits = {"tiny": known.tiny, "smallest_normal": known.tiny, "eps": known.eps, "max": known.max, "min": -known.max}
    if which not in limits:
        raise Unwritable(f"finfo has no {which}")
    return limits[which]
