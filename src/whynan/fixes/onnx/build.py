"""New nodes for a graph, valid at its opset and in the dtype of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from whynan.fixes.onnx.read import AXES_ARE_AN_INPUT, AXES_OTHERWISE, MARK
from whynan.ops.table import ONNX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Made = ir.Value | float | int | bool
_EQUAL_OF_FLOATS: Final = 11
_OR_EQUAL: Final = 12
_CLIP_OF_INPUTS: Final = 12
_TRUE_MAX: Final = 8
_WHERE: Final = 9


class Unwritable(Exception):  # noqa: N818
    """What cannot be written in this model, and why."""


class Builder:
    """Makes nodes one after another; ``nodes`` are those made so far, in an order in which they can run."""

    def __init__(self, opset: int, dtype: ir.DataType, names: set[str]) -> None:
        self.opset = opset
        self.dtype = dtype
        self.nodes: list[ir.Node] = []
        self._names = names
        self._numbers: dict[tuple[str, float, ir.DataType], ir.Value] = {}

    def op(
        self, op: str, *inputs: Made | None, attributes: Mapping[str, Any] | None = None, dtype: Any = None
    ) -> ir.Value:
        """One node; numbers among its inputs become constants of the dtype of the others."""
        dtype = dtype or self._common_dtype(inputs)
        given = [self.as_value(one, dtype) if one is not None else None for one in inputs]
        name = self._name(op)
        made = ir.node(op, given, attributes=attributes or {}, name=name)
        made.outputs[0].name = name
        made.outputs[0].dtype = ir.DataType.BOOL if op in ONNX.having("question") else dtype
        self.nodes.append(made)
        return made.outputs[0]

    def _common_dtype(self, inputs: Iterable[Made | None]) -> ir.DataType:
        kinds = [one.dtype for one in inputs if isinstance(one, ir.Value)]
        return next((kind for kind in kinds if kind is not None and kind.is_floating_point()), self.dtype)

    def as_value(self, made: Made, dtype: ir.DataType | None = None) -> ir.Value:
        """A number as a constant of a dtype; a value as it is."""
        if isinstance(made, ir.Value):
            return made
        kind = ir.DataType.BOOL if isinstance(made, bool) else dtype or self.dtype
        key = (repr(made), float(made), kind)
        if key not in self._numbers:
            self._numbers[key] = self.constant(np.asarray(made).astype(kind.numpy()))
        return self._numbers[key]

    def constant(self, array: Any) -> ir.Value:
        """An array as a node, which is as good in a function's body as in a graph."""
        name = self._name("Constant")
        made = ir.node("Constant", [], attributes={"value": ir.tensor(array, name=name)}, name=name)
        made.outputs[0].name = name
        self.nodes.append(made)
        return made.outputs[0]

    def reduce(self, op: str, value: Made, axes: tuple[int, ...] | None, *, keep: bool) -> ir.Value:
        """A reduction over axes, all where None."""
        attributes: dict[str, Any] = {"keepdims": int(keep)}
        inputs: list[Made | None] = [value]
        if axes is not None and self.opset >= AXES_ARE_AN_INPUT.get(op, AXES_OTHERWISE):
            inputs.append(self.constant(np.array(axes, np.int64)))
        elif axes is not None:
            attributes["axes"] = axes
        return self.op(op, *inputs, attributes=attributes)

    def squeeze(self, value: ir.Value, axes: tuple[int, ...] | None) -> ir.Value:
        """A value without axes of length 1, all of them where None."""
        if axes is None:
            return self.op("Squeeze", value)
        if self.opset >= AXES_ARE_AN_INPUT["ReduceSum"]:
            return self.op("Squeeze", value, self.constant(np.array(axes, np.int64)))
        return self.op("Squeeze", value, attributes={"axes": axes})

    def where(self, asked: Made, then: Made, otherwise: Made) -> ir.Value:
        """A choice, element by element."""
        if self.opset < _WHERE:
            raise Unwritable(f"opset {self.opset} has no Where")
        return self.op("Where", asked, then, otherwise)

    def compare(self, operator: str, left: Made, right: Made) -> ir.Value:
        """A comparison by its name in the language: ``lt``, ``le``, ``gt``, ``ge``, ``eq``, ``ne``."""
        if operator in ("eq", "ne"):
            if self.opset < _EQUAL_OF_FLOATS:
                raise Unwritable(f"Equal of opset {self.opset} compares no floats")
            equal = self.op("Equal", left, right)
            return equal if operator == "eq" else self.op("Not", equal)
        if operator in ("lt", "gt"):
            return self.op("Less" if operator == "lt" else "Greater", left, right)
        if self.opset < _OR_EQUAL:
            return self.op("Not", self.op("Greater" if operator == "le" else "Less", left, right))
        return self.op("LessOrEqual" if operator == "le" else "GreaterOrEqual", left, right)

    def clamp(self, value: Made, low: Made | None, high: Made | None) -> ir.Value:
        """A value no less than a limit and no more than another."""
        if self.opset >= _CLIP_OF_INPUTS and not any(isinstance(one, ir.Value) for one in (low, high)):
            return self.op("Clip", value, low, high) if high is not None else self.op("Clip", value, low)
        if self.opset < _TRUE_MAX:
            raise Unwritable(f"Max of opset {self.opset} does not broadcast")
        made = self.as_value(value)
        if low is not None:
            made = self.op("Max", made, low)
        return made if high is None else self.op("Min", made, high)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A value in another dtype."""
        return self.op("Cast", value, attributes={"to": dtype.value}, dtype=dtype)

    def clone_node(self, node: ir.Node, inputs: list[ir.Value | None]) -> ir.Value:
        """A node once more, on other inputs."""
        name = self._name(node.op_type)
        attributes = list(node.attributes.values())
        made = ir.Node(
            node.domain, node.op_type, inputs, attributes, num_outputs=len(node.outputs), name=name, doc_string=None
        )
        for i, output in enumerate(made.outputs):
            output.name = name if i == 0 else f"{name}_{i}"
        self.nodes.append(made)
        return made.outputs[0]

    def _name(self, op: str) -> str:
        number = len(self._names)
        while (name := f"{MARK}{op}_{number}") in self._names:
            number += 1
        self._names.add(name)
        return name
