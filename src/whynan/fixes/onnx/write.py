"""A replacement as new nodes; operators that ONNX lacks are composed of those that it has."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from whynan.fixes.onnx.build import Builder, Made, Unwritable
from whynan.fixes.onnx.formulas import FORMULAS, ROWS
from whynan.floats import format_of
from whynan.ops.names import FUNCTIONS
from whynan.ops.signatures import SIGNATURES, canonical
from whynan.ops.spelling import COMPARISONS, SYMBOLS
from whynan.ops.table import ONNX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.fixes.onnx.read import Bound


# -- A replacement of a fix as new nodes -------------------------------------------------------------------------------


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


class Writer:
    """Writes expressions whose variables are known."""

    def __init__(self, builder: Builder, bound: Mapping[str, Bound]) -> None:
        self.builder = builder
        self._bound = bound
        self._known: dict[str, Made] = {}

    def value(self, expression: ast.expr) -> ir.Value:
        """The value of an expression; raises ``Unwritable``."""
        return self.builder.as_value(self.result(expression))

    def result(self, expression: ast.expr) -> Made:
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
            return build.compare(name, *(self.result(one) for one in arguments))
        if name in ("softmax", "log_softmax"):
            return build.op(op or "", self.result(arguments[0]), attributes={"axis": self._axis(call)})
        if name in ROWS:
            return self._row_reduction(call)
        if op in ONNX.having("reduction"):
            axes, keep = self.axes(call)
            return build.reduce(op, self.result(arguments[0]), axes, keep=keep)
        if name in _CLAMPS:
            limits = {**dict(zip(_CLAMPS[name], arguments[1:], strict=False)), **call.named}
            low, high = (self.result(limits[end]) if end in limits else None for end in ("min", "max"))
            return build.clamp(self.result(arguments[0]), low, high)
        if name in ("zeros_like", "ones_like"):
            return float(name == "ones_like")
        made = [self.result(one) for one in arguments]
        match name:
            case "where":
                return build.where(*made)
            case "logaddexp" if (numbers := [one for one in made if not isinstance(one, ir.Value)]) and not any(
                numbers
            ):
                return build.op("Softplus", *(one for one in made if isinstance(one, ir.Value)))
            case "float" | "double":
                return build.cast(build.as_value(made[0]), ir.DataType[name.upper()])
            case "type_as":
                value, other = (build.as_value(one) for one in made)
                return build.cast(value, other.dtype or build.dtype)
            case _ if name in FORMULAS:
                return self._formula(FORMULAS[name], dict(zip(SIGNATURES.get(name, ("input",)), made, strict=False)))
            case _ if op is None:
                raise Unwritable(f"ONNX has no {name}")
            case _ if name in _PLAIN and not any(isinstance(one, ir.Value) for one in made):
                return float(_PLAIN[name](*(float(one) for one in made if not isinstance(one, ir.Value))))
            case _:
                return build.op(op, *made)

    def _formula(self, text: str, bound: Mapping[str, Bound]) -> Made:
        return Writer(self.builder, bound).result(ast.parse(text, mode="eval").body)

    def _row_reduction(self, call: Call) -> Made:
        """A reduction by its formula."""
        first, *rest = call.arguments
        if call.operator == "vector_norm" and rest:
            # torch.linalg.vector_norm takes the order before the axes
            if self.result(rest[0]) != 2:
                raise Unwritable("only the norm of order 2 is written")
            call = Call(call.operator, (first, *rest[1:]), call.named)
        axes, keep = self.axes(call)
        made = self._formula(ROWS[call.operator], {"input": self.value(first), "dim": axes})
        return made if keep else self.builder.squeeze(self.builder.as_value(made), axes)

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
        axes, kept = self._bound_argument(dim), self._bound_argument(keep)
        if isinstance(axes, ir.Value | float):
            raise Unwritable("the axes are not known")
        return (axes,) if isinstance(axes, int) else axes, bool(kept)

    def _bound_argument(self, of: ast.expr | None) -> Bound:
        if isinstance(of, ast.Name):
            return self._bound.get(of.id)
        return None if of is None else ast.literal_eval(of)


_CLAMPS: Final = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}
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
