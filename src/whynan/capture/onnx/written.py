"""How many nodes a model has as it is written, without reading its weights."""

# pyright: strict

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_GRAPH: Final = 7
"""Of a ModelProto; the numbers of fields are those of onnx.proto, the layout is protobuf's."""
_NODE: Final = 1
"""Of a GraphProto."""
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5


def nodes_written(path: str) -> int:
    """The nodes of the main graph of a file; 0 where it is none of protobuf's."""
    with open(path, "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            return 0
        with data:
            try:
                graphs = [span for field, *span in _fields(data, 0, len(data)) if field == _GRAPH]
                return sum(field == _NODE for begin, end in graphs for field, *_ in _fields(data, begin, end))
            except (ValueError, IndexError):
                return 0


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of a message: number, begin and end of the content."""
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        begin = at
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _LENGTH:
            length, begin = _varint(data, at)
            at = begin + length
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
        else:
            raise ValueError("no field")
        yield tag >> 3, begin, at


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
