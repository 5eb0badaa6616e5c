"""The types of the values of ONNX models, by the names that reports use."""

# pyright: strict

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import onnx
from onnx import helper

from whynan.models.onnx_files import text_of

if TYPE_CHECKING:
    from onnx import TensorShapeProto, TypeProto, ValueInfoProto

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
