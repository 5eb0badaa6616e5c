"""Between the values of ONNX Runtime and arrays: without a copy where NumPy knows the type."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import onnx
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
from onnx import TensorProto, TypeProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.capture.onnx.execution import Tensor, Value

ort: Final[Any] = onnxruntime
"""ONNX Runtime, which says nothing of its types."""
_NUMPY_KINDS: Final = "biuf"
_STRINGS: Final = "OUST"
_OPSET: Final = 17
"""The first opset with sequences and optionals as they are now; any later one serves as well."""
_IR: Final = 8
_ELEMENTS: Final = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    **{
        TensorProto.DataType.Name(number).lower().replace("_", ""): number
        for number in cast("Any", TensorProto.DataType).values()
    },
}
"""The names that ONNX Runtime has for element types."""


class EmptyOptional:
    """An optional that holds nothing, in place of an ``OrtValue``: fed with one of these, ONNX Runtime crashes."""

    def has_value(self) -> bool:
        """It has none."""
        return False


NOTHING: Final = EmptyOptional()


def run_session(session: Any, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of a session as ``OrtValue``s, or NOTHING."""
    if all(value.has_value() for value in feeds.values()):
        return list(session.run_with_ort_values(list(names), dict(feeds)))
    found = session.run(list(names), {name: value if value.has_value() else None for name, value in feeds.items()})
    return [NOTHING if value is None else make_ort_value(value, kind_of(value)) for value in found]


def read_ort_value(value: Any) -> Value:
    """What an ``OrtValue`` holds: a view of its memory, which lasts as long as the ``OrtValue`` does, where it can be.

    Raises ``RuntimeError`` for maps and sparse tensors.
    """
    # of an empty optional nothing else may be asked: ONNX Runtime crashes
    if not value.has_value():
        return None
    if value.is_tensor():
        return _tensor(value)
    said = str(value.data_type())
    if said.startswith("seq(tensor("):
        return _elements(value, type_of(said).sequence_type.elem_type)
    raise RuntimeError(f"a value of the type {said} cannot be looked at")


def make_ort_value(value: Value, kind: TypeProto) -> Any:
    """An ``OrtValue`` that holds a value of this type; it shares the memory of an array that NumPy knows."""
    if kind.HasField("optional_type"):
        return NOTHING if value is None else make_ort_value(value, kind.optional_type.elem_type)
    if kind.HasField("sequence_type"):
        return _sequence(cast("list[Any]", value), kind.sequence_type.elem_type)
    return give_tensor(cast("Tensor", value), kind.tensor_type.elem_type)


def give_tensor(value: Tensor, element: int | None = None) -> Any:
    """An ``OrtValue`` of one tensor; ``element`` is its ONNX element type, by default that of its dtype."""
    array = np.asarray(value)
    if element is None:
        element = element_type(array)
    if array.dtype.kind in _STRINGS or array.dtype.name in _PACKED:
        return _constant(array, element)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # not ascontiguousarray, which makes a row of a single number
    array = np.asarray(array, order="C")
    if _is_numpys(array.dtype):
        return ort.OrtValue.ortvalue_from_numpy(array)
    raw = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, element)


def element_type(array: Tensor) -> int:
    """The ONNX element type of an array."""
    if array.dtype.kind in _STRINGS:
        return TensorProto.STRING
    return int(helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("=")))


def kind_of(value: Value) -> TypeProto:
    """The type that a value has by itself, without a shape; raises ``RuntimeError`` where it does not tell."""
    if value is None:
        raise RuntimeError("of what type an empty optional is, is not known")
    if isinstance(value, list):
        if not value:
            raise RuntimeError("of what type an empty sequence is, is not known")
        return helper.make_sequence_type_proto(kind_of(value[0]))
    return helper.make_tensor_type_proto(element_type(np.asarray(value)), None)


def type_of(said: str) -> TypeProto:
    """The type that ONNX Runtime writes as ``seq(tensor(float))``, without a shape; raises ``RuntimeError``."""
    outer, _, inner = said.rstrip(")").partition("(")
    if outer == "tensor" and inner in _ELEMENTS:
        return helper.make_tensor_type_proto(_ELEMENTS[inner], None)
    if outer == "seq":
        return helper.make_sequence_type_proto(type_of(f"{inner})"))
    if outer == "optional":
        return helper.make_optional_type_proto(type_of(f"{inner})"))
    raise RuntimeError(f"a value of the type {said} cannot be handed on")


def shapeless(kind: TypeProto) -> TypeProto:
    """The same type without what it says of a shape."""
    bare = TypeProto()
    bare.CopyFrom(kind)
    innermost = bare
    while not innermost.HasField("tensor_type"):
        if innermost.HasField("sequence_type"):
            innermost = innermost.sequence_type.elem_type
        elif innermost.HasField("optional_type"):
            innermost = innermost.optional_type.elem_type
        else:
            return bare
    innermost.tensor_type.ClearField("shape")
    return bare


def detached(value: Any) -> Any:
    """An ``OrtValue`` that does not keep the other outputs of its run alive, as one that a session gives does."""
    if not value.has_value() or not value.is_tensor():
        return value
    array = _tensor(value)
    if array.dtype.kind in _STRINGS or not _is_numpys(array.dtype):
        return give_tensor(np.array(array), int(value.element_type()))
    return give_tensor(array)


def same_bits(first: Value, second: Value) -> bool:
    """Whether two values are the same, bit for bit: NaN with the same payload is, 0 and -0 are not."""
    if first is None or second is None:
        return first is second
    if isinstance(first, list) or isinstance(second, list):
        return (
            isinstance(first, list)
            and isinstance(second, list)
            and len(first) == len(second)
            and all(same_bits(one, other) for one, other in zip(first, second, strict=True))
        )
    one, other = np.asarray(first), np.asarray(second)
    if one.shape != other.shape:
        return False
    if one.dtype.kind in _STRINGS or other.dtype.kind in _STRINGS:
        return one.dtype.kind in _STRINGS and other.dtype.kind in _STRINGS and one.tolist() == other.tolist()
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def copy_value(value: Value) -> Value:
    """A value that stays when what it was read from is gone."""
    if isinstance(value, list):
        return [copy_value(element) for element in value]
    return None if value is None else np.array(value)


def _tensor(value: Any) -> Tensor:
    element = int(value.element_type())
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    if element == TensorProto.STRING or _is_numpys(dtype):
        return value.numpy()
    shape = tuple(int(size) for size in value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.zeros(shape, dtype)
    raw = _memory(value)
    if dtype.name in _PACKED:
        return _unpacked(raw, _PACKED[dtype.name], count).view(dtype).reshape(shape)
    return raw.view(dtype).reshape(shape)


def _memory(value: Any) -> Tensor:
    """The bytes of a tensor, which keep it alive."""
    buffer = (ctypes.c_ubyte * int(value.tensor_size_in_bytes())).from_address(int(value.data_ptr()))
    cast("Any", buffer).kept = value
    return np.frombuffer(cast("Any", buffer), np.uint8)


_PACKED: Final = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
"""Bits of the dtypes of which ONNX keeps several in a byte, the first in the lowest bits; ml_dtypes keeps one."""


def _unpacked(raw: Tensor, bits: int, count: int) -> Tensor:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((raw[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count].astype(np.uint8)


def _is_numpys(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _NUMPY_KINDS and dtype.type.__module__ == "numpy"


def _constant(array: Tensor, element: int) -> Any:
    """Through a model that has the tensor as initialiser and output: for what cannot be made in any other way."""
    if element == TensorProto.STRING:
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.reshape(-1).tolist()]
        tensor = helper.make_tensor("x", element, array.shape, cast("Any", texts))
    else:
        tensor = numpy_helper.from_array(array, "x")
    output = helper.make_tensor_value_info("x", element, None)
    graph = helper.make_graph([], "constant", [], [output], [tensor])
    return _session(graph, _newest()).run_with_ort_values(None, {})[0]


def _newest() -> int:
    return min(onnx.defs.onnx_opset_version(), 23)


def _session(graph: onnx.GraphProto, opset: int = _OPSET) -> Any:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_ir_of(opset))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _ir_of(opset: int) -> int:
    return _IR if opset == _OPSET else 11


@cache
def _reader(element: bytes) -> Any:
    """A session that says how long a sequence is, and one that hands out one of its elements."""
    kind = helper.make_sequence_type_proto(shapeless(TypeProto.FromString(element)))
    sequence = onnx.ValueInfoProto(name="s", type=kind)
    index = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    length = helper.make_graph(
        [helper.make_node("SequenceLength", ["s"], ["n"])], "length", [sequence], [onnx.ValueInfoProto(name="n")]
    )
    one = helper.make_graph(
        [helper.make_node("SequenceAt", ["s", "i"], ["x"])], "at", [sequence, index], [onnx.ValueInfoProto(name="x")]
    )
    return _session(length), _session(one)


def _elements(value: Any, element: TypeProto) -> list[Any]:
    length, one = _reader(element.SerializeToString())
    count = int(length.run_with_ort_values(None, {"s": value})[0].numpy())
    indices = (give_tensor(np.array(i, np.int64)) for i in range(count))
    # each is an own value of the session, which its view keeps
    return [copy_value(read_ort_value(one.run_with_ort_values(None, {"s": value, "i": index})[0])) for index in indices]


def _sequence(values: Sequence[Value], element: TypeProto) -> Any:
    bare = shapeless(element)
    output = onnx.ValueInfoProto(name="s", type=helper.make_sequence_type_proto(bare))
    if not values:
        node = helper.make_node("SequenceEmpty", [], ["s"], dtype=element.tensor_type.elem_type)
        return _session(helper.make_graph([node], "empty", [], [output])).run_with_ort_values(None, {})[0]
    names = [f"x{i}" for i in range(len(values))]
    inputs = [onnx.ValueInfoProto(name=name, type=bare) for name in names]
    node = helper.make_node("SequenceConstruct", names, ["s"])
    session = _session(helper.make_graph([node], "sequence", inputs, [output]))
    fed = {name: make_ort_value(value, element) for name, value in zip(names, values, strict=True)}
    return session.run_with_ort_values(None, fed)[0]


_PREFIX: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


def engine_message(error: Exception) -> str:
    """What ONNX Runtime says of an error, on one line and without the prefix of all its messages."""
    return " ".join(_PREFIX.sub("", str(error)).split())
