"""The folder of a capsule: written beside its place and moved there whole, its tensors as safetensors."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from pydantic import BaseModel

from whynan.errors import UsageError
from whynan.traces.reader import Folder
from whynan.traces.writer import open_private

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from whynan.capsule.document import Layout


# -- The folder of a capsule: written beside its place and moved there whole; read only where it is what whynan
# writes


M = TypeVar("M", bound=BaseModel)

DOCUMENT: Final = "capsule.json"
REPORT: Final = "report.json"
TENSORS: Final = "operands.safetensors"
SCRIPT: Final = "repro.py"
SOURCE: Final = "source.txt"
NODE: Final = "node.onnx"
VISITS: Final = "visits"
VISITS_DOCUMENT: Final = "visits.json"
VISITS_TENSORS: Final = "tensors.safetensors"
MOST_DOCUMENT: Final = 64 << 20
MOST_TENSORS: Final = 4 << 30
_LONGEST: Final = 160
_WHAT: Final = "give a folder that --capsule has written"


def check_free(path: str, option: str = "--capsule") -> None:
    """Raise ``UsageError`` where a new folder could not be made, before anything depends on it."""
    place = os.path.abspath(path)
    above = os.path.dirname(place)
    if os.path.lexists(place) and not (os.path.isdir(place) and not os.path.islink(place)):
        raise UsageError(f"{option} {path} is no folder", "name a new one")
    if not os.path.isdir(above):
        raise UsageError(f"{option} {path}: there is no directory {above}", "make it first, or name another")
    try:
        if os.path.isdir(place) and os.listdir(place):
            raise UsageError(f"{option} {path} is not empty", "name a new folder, or delete that one")
        os.rmdir(tempfile.mkdtemp(dir=above, prefix=".whynan-"))
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written ({error.strerror})", "name another folder") from None


@contextmanager
def new_folder(path: str) -> Generator[str]:
    """A folder to write into, which becomes that of the path once all is written; else nothing is left of it."""
    place = os.path.abspath(path)
    made = tempfile.mkdtemp(dir=os.path.dirname(place), prefix=".whynan-")
    try:
        yield made
        with suppress(FileNotFoundError):
            os.rmdir(place)
        os.rename(made, place)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def write_private(folder: str, name: str, data: bytes) -> None:
    """Write a file that is its owner's alone."""
    with open(os.path.join(folder, name), "xb", opener=open_private) as file:
        file.write(data)


def move(folder: str, path: str) -> None:
    """Move a capsule to its place, which may be on another disk."""
    with new_folder(path) as made:
        for name in os.listdir(folder):
            held = os.path.join(folder, name)
            shutil.copytree(held, os.path.join(made, name)) if os.path.isdir(held) else shutil.copy(held, made)


class CapsuleFolder(Folder):
    """The folder of a capsule; what is in it that should not be is refused with one ``UsageError``."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            super().__init__(directory)
        except UsageError as error:
            raise UsageError(error.what, _WHAT) from None
        if os.path.islink(directory):
            raise UsageError(f"{self.shown} is a link", "give the folder itself")

    def refusal(self, name: str, why: str) -> UsageError:
        """The error for a file of the folder."""
        short = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
        return UsageError(f"{os.path.join(self.shown, name)} is no part of a capsule ({short})", _WHAT)

    def needed(self, name: str, most: int) -> bytes:
        """The content of a file that has to be there."""
        content = self.read(name, most)
        if content is None:
            raise self.refusal(name, "it is not there")
        return content

    def read_document(self, name: str, kind: type[M], schema: str) -> M:
        """The document of a file that has to be there."""
        held = self.parsed(name, self.needed(name, MOST_DOCUMENT))
        if not isinstance(held, dict):
            raise self.refusal(name, "it holds no JSON object")
        found = cast("dict[str, Any]", held).get("schema")
        if found != schema:
            raise self.refusal(name, f"its schema is {found!r}, not {schema}")
        return self.validated(name, held, kind)

    def inner(self, name: str) -> CapsuleFolder | None:
        """A folder in this one; None where there is none."""
        path = os.path.join(self.shown, name)
        if not os.path.lexists(path):
            return None
        if os.path.islink(path) or not os.path.isdir(path):
            raise self.refusal(name, "it is no folder")
        return CapsuleFolder(path)


# -- Tensors as bytes in a file of safetensors, whatever their type: written here, read by the library that checks it


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


def serialize_tensors(tensors: Mapping[str, Stored], layouts: Mapping[str, Layout]) -> bytes:
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


def deserialize_tensors(content: bytes, layouts: Mapping[str, Layout]) -> dict[str, Stored]:
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
