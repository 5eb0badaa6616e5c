"""ONNX in float64: a graph rewritten so that every floating-point number of it is a double."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper

if TYPE_CHECKING:
    import onnx

    from whynan.compare.sides.operations import Array

_NARROW: Final = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16))
_TYPED: Final = frozenset(("to", "dtype", "stash_type"))
"""Attributes that name the dtype of what a node gives."""
_SINGLE: Final = {"Resize": (2,), "Upsample": (1,)}
"""Operands that are float32 whatever the data are."""


def doubled_value(value: Array) -> Array:
    """An array, in float64 where it is of a floating-point type."""
    return value.astype(np.float64) if is_floating(value) else value


def is_floating(value: Array) -> bool:
    """Whether an array is of a floating-point type, those of ml_dtypes included."""
    return value.dtype.kind == "f" or value.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def doubled_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node whose attributes and bodies are of float64."""
    made = type(node)()
    made.CopyFrom(node)
    _double(made)
    return made


def kept_single(op: str) -> tuple[int, ...]:
    """The operands of an operator that stay float32."""
    return _SINGLE.get(op, ())


def _double(node: onnx.NodeProto) -> None:
    if node.op_type == "Constant":
        _double_constant(node)
    for attribute in node.attribute:
        if attribute.name in _TYPED and attribute.type == AttributeProto.INT and attribute.i in _NARROW:
            # layer normalisations stash in float32 or in float64, and have the attribute for that
            attribute.i = TensorProto.DOUBLE
        elif attribute.type == AttributeProto.TENSOR:
            attribute.t.CopyFrom(_tensor(attribute.t))
        elif attribute.type == AttributeProto.GRAPH:
            _double_graph(attribute.g)


def _double_constant(node: onnx.NodeProto) -> None:
    """A float that is written as an attribute is a float32: it has to be a tensor."""
    for attribute in list(node.attribute):
        if attribute.name in ("value_float", "value_floats"):
            number: Any = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            node.attribute.remove(attribute)
            tensor = numpy_helper.from_array(np.asarray(number, np.float64))
            node.attribute.append(helper.make_attribute("value", tensor))


def _double_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        tensor.CopyFrom(_tensor(tensor))
    for value in (*graph.input, *graph.output, *graph.value_info):
        _double_type(value.type)
    kept = {node.input[n] for node in graph.node for n in kept_single(node.op_type) if n < len(node.input)}
    del graph.value_info[:]
    for node in graph.node:
        if not (node.op_type == "Constant" and node.output[0] in kept):
            _double(node)


def _tensor(tensor: TensorProto) -> TensorProto:
    if tensor.data_type not in _NARROW:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def _double_type(kind: TypeProto) -> None:
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type in _NARROW:
        kind.tensor_type.elem_type = TensorProto.DOUBLE
    elif kind.HasField("sequence_type"):
        _double_type(kind.sequence_type.elem_type)
    elif kind.HasField("optional_type"):
        _double_type(kind.optional_type.elem_type)


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of a node as Python values."""
    return {str(a.name): cast("Any", helper).get_attribute_value(a) for a in node.attribute}
