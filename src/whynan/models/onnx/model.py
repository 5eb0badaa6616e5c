"""ONNX model files: read whole, walked graph by graph, and the types of their values."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    helper,
)

from whynan.errors import UsageError
from whynan.models.strangers import STRANGERS, unreadable

# -- The parts of an ONNX model one after another: its graphs, those in bodies and functions, their nodes and tensors


class NodeInModel(NamedTuple):
    """A node, and the function whose body it stands in; None for the graph and the bodies of its nodes."""

    node: NodeProto
    function: FunctionProto | None


def nodes(model: ModelProto) -> Iterator[NodeInModel]:
    """Every node: of the graph, of the functions, and of the bodies in either."""
    for node in nodes_of(model.graph.node):
        yield NodeInModel(node, None)
    for function in model.functions:
        for node in nodes_of(function.node):
            yield NodeInModel(node, function)


def nodes_of(first: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, each followed by those of its bodies."""
    # protobuf refuses what is nested deeper than 100 levels
    for node in first:
        yield node
        for body in bodies(node):
            yield from nodes_of(body.node)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds: branches, the body of a loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        if attribute.graphs:
            yield from attribute.graphs


def graphs(model: ModelProto) -> Iterator[GraphProto]:
    """Every graph: the model's, those of its training information, and all bodies."""
    yield model.graph
    for information in model.training_info:
        yield information.initialization
        yield information.algorithm
        for node in nodes_of((*information.initialization.node, *information.algorithm.node)):
            yield from bodies(node)
    for node, _ in nodes(model):
        yield from bodies(node)


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor that the model holds or refers to."""
    for graph in graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
        for node in graph.node:
            yield from _attributed(node.attribute)
    for function in model.functions:
        yield from _attributed(function.attribute_proto)
        for node in function.node:
            yield from _attributed(node.attribute)


def _attributed(attributes: Iterable[onnx.AttributeProto]) -> Iterator[TensorProto]:
    for attribute in attributes:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for sparse in (
            *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ()),
            *attribute.sparse_tensors,
        ):
            yield sparse.values
            yield sparse.indices


# -- The file of an ONNX model: read whole, without its external data; whatever is none is refused with the reason -----


_ANY: Final = "give the .onnx file of a model"
AGAIN: Final = "export it again, or copy it anew"
_SPLIT: Final = "save large weights as external data: onnx.save(model, file, save_as_external_data=True)"
_LARGEST: Final = (1 << 31) - 1
"""Bytes of one message of protobuf."""
_TORCH: Final = "give the .onnx file that torch.onnx.export writes"
_STRANGERS: Final[tuple[tuple[int, bytes, str, str | None], ...]] = (
    *((0, beginning, what, hint) for beginning, what, hint in STRANGERS),
    (0, b"PK\x03\x04", "is a zip archive, as PyTorch's .pt and .pt2 files are", _TORCH),
    (4, b"ORTM", "is in the format of ONNX Runtime's own (.ort)", "give the .onnx file that it was made from"),
    (4, b"TFL3", "is a TensorFlow Lite model", None),
)


class ModelFile(NamedTuple):
    """A model as it stands in its file, and the SHA-256 of the file; empty where none was asked for."""

    proto: onnx.ModelProto
    sha256: str


def read_model(path: Path, *, digest: bool = True) -> ModelFile:
    """The model in a file, nothing of it checked but that it is one; raises ``UsageError`` for what is none."""
    data = read_file(path, _ANY, most=_LARGEST)
    if not data:
        raise UsageError(f"{path} is empty", "it was never written to its end; export it again")
    for offset, beginning, what, hint in _STRANGERS:
        if data.startswith(beginning, offset):
            raise UsageError(f"{path} {what}", hint or _ANY)
    proto = onnx.ModelProto()
    # a truncated model cannot be parsed: its graph is longer than what is left of it
    if not parse_message(proto, data) or not proto.HasField("graph"):
        raise UsageError(f"{path} is no ONNX model, or is cut off", AGAIN)
    return ModelFile(proto, hashlib.sha256(data).hexdigest() if digest else "")


def read_file(path: Path, hint: str, *, most: int) -> bytes:
    """The bytes of a regular file of at most so many; raises ``UsageError`` with a hint where there is none."""
    try:
        # a pipe would never end, and a device never begin
        with open(path, "rb", opener=_without_waiting) as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode):
                if found.st_size > most:
                    raise UsageError(f"{path} has {found.st_size:,} bytes, and at most {most:,} can be read", _SPLIT)
                return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path} does not exist", hint) from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder", hint) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise UsageError(f"{path} is no path ({error})", hint) from error
    raise UsageError(f"{path} is no regular file", hint)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def parse_message(message: Message, data: bytes) -> bool:
    """Fill a message from bytes; False where they are no such message."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        return False
    return True


def text_of(value: str) -> str | None:
    """A text of a message; None where it is not the UTF-8 that it should be, for which protobuf hands over bytes."""
    return value if isinstance(cast("object", value), str) else None


# -- The types of the values of ONNX models, by the names that reports use ---------------------------------------------


Dim: TypeAlias = "int | str | None"
Kind: TypeAlias = Literal["tensor", "sequence", "optional", "map", "unknown"]

STRING: Final = "string"


@dataclass(frozen=True, slots=True)
class Signature:
    """What one input or output of a model is: name, dtype and dimensions.

    A dimension is a number, the name of one that all values share, or None; ``dims`` is None where even their number
    is unknown. Of a sequence or an optional, dtype and dimensions are those of what it holds, and ``holds`` is all of
    it.
    """

    name: str
    dtype: str | None
    dims: tuple[Dim, ...] | None
    kind: Kind = "tensor"
    holds: Signature | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    @property
    def type(self) -> str:
        """The type without the name: ``float32[N, 3, 224, 224]``."""
        match self.kind:
            case "tensor":
                return f"{self.dtype or 'any type'}{spelled_dims(self.dims)}"
            case "sequence" | "optional" if self.holds is not None:
                return f"{'sequence of' if self.kind == 'sequence' else 'optional'} {self.holds.type}"
            case _:
                return f"{self.kind} type" if self.kind == "unknown" else self.kind


def spelled_dims(dims: tuple[Dim, ...] | None) -> str:
    """``[N, 3, ?]``; ``[...]`` where the number of dimensions is unknown."""
    return "[...]" if dims is None else f"[{', '.join('?' if d is None else str(d) for d in dims)}]"


def signature_of(info: ValueInfoProto) -> Signature:
    """The signature that a graph declares for one of its values."""
    return _signature(info.name, info.type)


def _signature(name: str, kind: TypeProto) -> Signature:
    match kind.WhichOneof("value"):
        case "tensor_type":
            tensor = kind.tensor_type
            dims = _dims(tensor.shape) if tensor.HasField("shape") else None
            return Signature(name, dtype_name(tensor.elem_type), dims)
        case "sequence_type":
            held = _signature("", kind.sequence_type.elem_type)
            return Signature(name, held.dtype, held.dims, "sequence", held)
        case "optional_type":
            held = _signature("", kind.optional_type.elem_type)
            return Signature(name, held.dtype, held.dims, "optional", held)
        case "map_type":
            return Signature(name, None, None, "map")
        case _:
            return Signature(name, None, None, "unknown")


def _dims(shape: TensorShapeProto) -> tuple[Dim, ...]:
    return tuple(_dim(dim) for dim in shape.dim)


def _dim(dim: TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        # some converters write -1 for what they do not know
        return dim.dim_value if dim.dim_value >= 0 else None
    return text_of(dim.dim_param) or None


@cache
def numpy_dtype(data_type: int) -> np.dtype[Any] | None:
    """The dtype of an element type's number; that of objects for strings, None for no type that is known."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(data_type))
    except (KeyError, ValueError, TypeError):
        return None


def dtype_name(data_type: int) -> str | None:
    """``float32``, ``bfloat16``, ``string`` for the number of an element type; None for none that is known."""
    found = numpy_dtype(data_type)
    return None if found is None else name_of(found)


def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in reports; strings are arrays of objects."""
    return STRING if dtype.kind in "OUST" else dtype.name


@cache
def _by_name() -> dict[str, np.dtype[Any]]:
    known = {number: numpy_dtype(number) for number in onnx.TensorProto.DataType.values()}
    return {name_of(dtype): dtype for number, dtype in known.items() if dtype is not None and number}


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of a name that `dtype_name` gave."""
    return _by_name()[name]


def bits_of(data_type: int) -> int | None:
    """How many bits one element takes in a file; None for strings, and for no type that is known."""
    name = dtype_name(data_type)
    if name is None or name == STRING:
        return None
    packed = _PACKED.fullmatch(name)
    return int(packed[1]) if packed else dtype_of(name).itemsize * 8


_PACKED: Final = re.compile(r"(?:u?int|float)([246])(?:_.*)?")
"""The dtypes of which a byte holds more than one, or parts; in memory each has a byte of its own."""
