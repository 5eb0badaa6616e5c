"""The model as written, read without its weights, and the bad constants that only the executed graph has."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

from whynan.capture.onnx.arrays import same_bits
from whynan.capture.onnx.counts import is_bad, is_floating
from whynan.capture.onnx.graph.executed import Executable, bodies_of, without_weights
from whynan.models.onnx.model import nodes, tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from whynan.capture.onnx.execution import Tensor


# -- What a model says as it is written, without reading its weights: they may be most of what the machine has ---------
#
# The numbers of fields are those of onnx.proto, the layout is protobuf's.


_GRAPH: Final = 7
_NODE, _INITIALIZER = 1, 5
_INPUT, _OUTPUT, _OP = 1, 2, 4
_DIMS, _NAME = 1, 8
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_CONTENT: Final = frozenset((4, 5, 6, 7, 9, 10, 11))
"""The fields of a tensor that hold its elements."""
_RAW, _EXTERNAL = 9, 13
_ELSEWHERE: Final = bytes((14 << 3, 1))
"""The field of a tensor that says that its elements are in another file."""
_LARGE: Final = 1 << 16
"""Bytes of a weight from which on an outline is without it."""


@dataclass(slots=True)
class WrittenGraph:
    """The nodes of the main graph, as op, inputs and outputs, and the shapes of its weights."""

    nodes: list[tuple[str, list[str], list[str]]] = field(default_factory=lambda: [])
    shapes: dict[str, list[int]] = field(default_factory=lambda: {})

    @property
    def weights(self) -> int:
        """How many numbers there are in all weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def read_written(path: str) -> WrittenGraph:
    """The nodes and shapes of a file; nothing where it cannot be read, or is none of protobuf's."""
    found = WrittenGraph()
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for number, begin, end in _fields(data, 0, len(data)):
                if number == _GRAPH:
                    _read_graph(data, begin, end, found)
    except (OSError, ValueError, IndexError):
        return WrittenGraph()
    return found


def _read_graph(data: mmap.mmap, begin: int, end: int, found: WrittenGraph) -> None:
    for number, at, until in _fields(data, begin, end):
        if number == _NODE:
            said: dict[int, list[str]] = {_INPUT: [], _OUTPUT: [], _OP: []}
            for kind, first, last in _fields(data, at, until):
                if kind in said:
                    said[kind].append(data[first:last].decode(errors="replace"))
            found.nodes.append(("".join(said[_OP]), said[_INPUT], said[_OUTPUT]))
        elif number == _INITIALIZER:
            _read_shape(data, at, until, found)


def _read_shape(data: mmap.mmap, begin: int, end: int, found: WrittenGraph) -> None:
    name, shape = "", list[int]()
    for number, at, until in _fields(data, begin, end):
        if number == _DIMS:
            # each by itself, or all of them packed
            while at < until:
                size, at = _varint(data, at)
                shape.append(size)
        elif number == _NAME:
            name = data[at:until].decode(errors="replace")
    found.shapes[name] = shape


def read_outline(path: str) -> onnx.ModelProto:
    """The model in a file, without the elements of its large weights, which count as being elsewhere.

    Raises ``OSError``, ``ValueError``, ``IndexError`` or ``DecodeError`` for what is no model.
    """
    return _read(path, _left_out)


def read_mapped(path: str) -> onnx.ModelProto:
    """The model in a file, of whose large weights it says that they are external data in this very file.

    So they can be mapped, and need not be copied. Raises as ``read_outline`` does.
    """
    location = _entry(b"location", Path(path).name.encode())
    return _read(path, lambda data, at, end: _elsewhere(data, at, end, location))


_Tensor: TypeAlias = "Callable[[mmap.mmap, int, int], bytes]"


def _read(path: str, tensor: _Tensor) -> onnx.ModelProto:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return onnx.ModelProto.FromString(_outline(data, 0, len(data), (_GRAPH, _INITIALIZER), tensor))


def _outline(data: mmap.mmap, at: int, end: int, way: Sequence[int], tensor: _Tensor) -> bytes:
    """A message; of what is large in it on the way, only the outline."""
    if not way:
        return tensor(data, at, end)
    parts: list[bytes] = []
    kept = begun = at
    for number, begin, until in _fields(data, at, end):
        if number == way[0] and until - begin > _LARGE:
            parts += (data[kept:begun], _field(number, _outline(data, begin, until, way[1:], tensor)))
            kept = until
        begun = until
    return b"".join((*parts, data[kept:end]))


def _left_out(data: mmap.mmap, at: int, end: int) -> bytes:
    """A tensor without its elements."""
    return b"".join((*_kept(data, at, end, _CONTENT), _ELSEWHERE))


def _elsewhere(data: mmap.mmap, at: int, end: int, location: bytes) -> bytes:
    """A tensor whose bytes, if it has any, are in a file; one with a list of numbers stays as it is."""
    found = next((place for place in _fields(data, at, end) if place[0] == _RAW), None)
    if found is None:
        return data[at:end]
    _, begin, until = found
    entries = _entry(b"offset", b"%d" % begin), _entry(b"length", b"%d" % (until - begin))
    return b"".join((*_kept(data, at, end, frozenset((_RAW,))), location, *entries, _ELSEWHERE))


def _kept(data: mmap.mmap, at: int, end: int, dropped: frozenset[int]) -> Iterator[bytes]:
    for number, _, until in _fields(data, at, end):
        if number not in dropped:
            yield data[at:until]
        at = until


def _entry(key: bytes, value: bytes) -> bytes:
    return _field(_EXTERNAL, _field(1, key) + _field(2, value))


def _field(number: int, content: bytes) -> bytes:
    found = bytearray((number << 3 | _LENGTH,))
    length = len(content)
    while length > 0x7F:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    found.append(length)
    return bytes(found) + content


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


# -- The bad constants of an executed graph that the file does not have: ONNX Runtime computed them before the run -----


def computed_constants(graph: Executable, written: WrittenGraph, path: str) -> tuple[str, ...]:
    """The names of these constants, of the graph and of all bodies in it."""
    if not written.nodes:
        # what the file says is not known
        return ()
    stands = {output for op, _, outputs in written.nodes if op == "Constant" for output in outputs}
    bad = _bad(graph, {*written.shapes, *stands})
    if not bad:
        return ()
    model = without_weights(Path(path))
    return tuple(name for name, array in bad.items() if not _is_written(model, array))


def _bad(graph: Executable, known: set[str]) -> dict[str, Tensor]:
    """The bad constants of a graph and its bodies; names tell only those of the main graph from the file's own."""
    found: dict[str, Tensor] = {}
    for name in graph.constants:
        if name not in known:
            array = graph.array(name)
            if is_floating(array) and is_bad(array):
                found[name] = array
            # what is mapped counts as memory
            graph.forget()
    for node in graph.nodes:
        for attribute, _ in bodies_of(node.proto):
            found |= _bad(graph.body(node, attribute), set())
    return found


def _is_written(model: onnx.ModelProto, array: Tensor) -> bool:
    """Whether the file itself has a constant like this one, under whatever name and in whatever body."""
    for tensor in tensors(model):
        inside = tuple(tensor.dims) == array.shape and not external_data_helper.uses_external_data(tensor)
        if inside and same_bits(numpy_helper.to_array(tensor), array):
            return True
    numbers = (a for held in nodes(model) if held.node.op_type == "Constant" for a in held.node.attribute)
    return any(
        (a.name == "value_float" and same_bits(np.array(a.f, np.float32), array))
        or (a.name == "value_floats" and same_bits(np.array(a.floats, np.float32), array))
        for a in numbers
    )
