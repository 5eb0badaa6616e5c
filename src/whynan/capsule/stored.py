"""Tensors as bytes in a file of safetensors, whatever their type: written here, read by the library that checks it."""

# pyright: strict

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capsule.documents import Layout

_KINDS: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
"""What the format calls a type; any other is stored as its bytes."""
_ITEMS: Final = {
    **dict.fromkeys(("bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu",), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "complex32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes of an element."""
_ALIGNED: Final = 8


class Stored(NamedTuple):
    """The elements of a tensor in row-major order, what they are, and how many of them there are along each axis."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def written(tensors: Mapping[str, Stored], layouts: Mapping[str, Layout]) -> bytes:
    """A file of safetensors; what it says of itself is the layout of each tensor, for a script that reads it alone."""
    told = {n: [layout.dtype, layout.shape, layout.stride] for n, layout in layouts.items() if n in tensors}
    header: dict[str, Any] = {"__metadata__": {"layouts": json.dumps(told)}}
    at = 0
    for name, tensor in tensors.items():
        kind, shape = _KINDS.get(tensor.dtype), tensor.shape
        if kind is None:
            kind, shape = "U8", (len(tensor.data),)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(tensor.data)]}
        at += len(tensor.data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return b"".join([len(text).to_bytes(8, "little"), text, *(tensor.data for tensor in tensors.values())])


def read(content: bytes, layouts: Mapping[str, Layout]) -> dict[str, Stored]:
    """The tensors of a file; raises ``ValueError`` where they are not those of the layouts."""
    import safetensors

    library: Any = safetensors
    try:
        held = {name: cast("dict[str, Any]", entry) for name, entry in library.deserialize(content)}
    except library.SafetensorError as error:
        raise ValueError(str(error).removeprefix("Error while deserializing header: ")) from error
    found: dict[str, Stored] = {}
    for name, layout in layouts.items():
        if name not in held:
            raise ValueError(f"there is no tensor {name}")
        size = _ITEMS.get(layout.dtype)
        if size is None:
            raise ValueError(f"{layout.dtype} is no type of numbers")
        shape = stored_shape(layout)
        data = bytes(held[name]["data"])
        if len(data) != math.prod(shape) * size:
            raise ValueError(f"the tensor {name} is not of the size that its layout has")
        found[name] = Stored(layout.dtype, shape, data)
    return found


def stored_shape(layout: Layout) -> tuple[int, ...]:
    """The shape of what is stored of a tensor: what only repeats is there once; raises ``ValueError`` for no layout."""
    if len(layout.shape) != len(layout.stride):
        raise ValueError("a layout has other strides than sizes")
    return tuple(1 if step == 0 and size > 1 else size for size, step in zip(layout.shape, layout.stride, strict=True))
