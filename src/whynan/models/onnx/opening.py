"""Safe opening of an ONNX model: its signature, its operators, its external data; nothing is run."""

from __future__ import annotations

import errno
import math
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, cast

import onnx
from onnx import ModelProto, TensorProto

from whynan.errors import UsageError
from whynan.models.onnx.model import AGAIN, bits_of, graphs, nodes, read_model, signature_of, tensors, text_of
from whynan.models.onnx.model import Signature as Signature
from whynan.models.onnx.operators import check_operators, opset_of
from whynan.models.strangers import unreadable

# -- The files beside an ONNX model that hold its weights: checked before any engine opens them ------------------------


_ATTACK: Final = "it may be an attack: copy the weights into the model's folder, and export or save the model again"
_ABSOLUTE: Final = re.compile(r"[/\\]|[A-Za-z]:|[A-Za-z][A-Za-z0-9+.-]*://")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_MEMORY: Final = "_ORT_MEM_ADDR_"
"""By which ONNX Runtime is told that the offset is an address in its memory."""


class _Place(NamedTuple):
    """Where a tensor's bytes are."""

    location: str
    offset: int
    length: int | None


def is_external(tensor: TensorProto) -> bool:
    """Whether a tensor's bytes are in another file."""
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def check_external(proto: ModelProto, folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Check every file that the tensors of a model refer to, and give their locations.

    None may lie outside the folder, be reached through a link that leads out of it, or have a second name elsewhere
    (a hard link); each is a regular file that is long enough. To be asked of a rewritten model too.

    Raises:
        UsageError: for the first one that is not so.
    """
    checked: dict[str, int] = {}
    home = Path(folder)
    for tensor in tensors(proto):
        if is_external(tensor):
            name = _name(tensor)
            place = _place(tensor, name)
            if place.location not in checked:
                checked[place.location] = _size(home, place.location, name)
            _check_length(tensor, name, place, checked[place.location])
    return tuple(checked)


def _name(tensor: TensorProto) -> str:
    return text_of(tensor.name) or "a tensor without a name"


def _place(tensor: TensorProto, name: str) -> _Place:
    entries = {text_of(entry.key): text_of(entry.value) for entry in tensor.external_data}
    location, offset, length = (entries.get(key) for key in ("location", "offset", "length"))
    if not location or "\0" in location:
        raise UsageError(f"{name} is said to be in another file, and no file is named", AGAIN)
    for value in (offset, length):
        if value is not None and not _NUMBER.fullmatch(value):
            raise UsageError(f"{name} is said to be at {value} of {location}, which is no number of bytes", AGAIN)
    return _Place(location, int(offset or 0), None if length is None else int(length))


def _size(folder: Path, location: str, name: str) -> int:
    """How long an external file is."""
    if _ABSOLUTE.match(location):
        raise UsageError(f"{name} is in {location}, which is an absolute path", _ATTACK)
    if _MEMORY in location:
        raise UsageError(f"{name} is in {location}, which is an address in memory", _ATTACK)
    if ".." in re.split(r"[/\\]", location):
        raise UsageError(f"{name} is in {location}, which leads out of the model's folder", _ATTACK)
    file = folder / location
    _check_links(file, folder, location, name)
    try:
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{file} holds {name}, and is no regular file", AGAIN)
        _check_with_onnx_ir(file, folder, location)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{file} does not exist, and holds {name}", "put the model's external data beside the model"
        ) from None
    except OSError as error:
        raise unreadable(file, error) from error
    except ValueError as error:
        raise UsageError(f"{name} is in {location}, which onnx-ir refuses", _ATTACK) from error
    if not os.access(file, os.R_OK):
        raise unreadable(file, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    return found.st_size


def _check_links(file: Path, folder: Path, location: str, name: str) -> None:
    target, home = os.path.realpath(file), os.path.realpath(folder)
    if not _lies_in(target, home) and not _lies_in(target, _cache_beside(home)):
        raise UsageError(f"{name} is in {location}, which is a link out of the model's folder", _ATTACK)
    try:
        found = os.stat(target)
    except OSError:
        # who opens it says so
        return
    if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
        raise UsageError(f"{name} is in {location}, which is the same file as one elsewhere (a hard link)", _ATTACK)


def _lies_in(target: str, folder: str | None) -> bool:
    return folder is not None and os.path.commonpath((target, folder)) == folder


def _cache_beside(home: str) -> str | None:
    """Where the cache of Hugging Face keeps the files that a folder of it only links to."""
    for inner in (Path(home), *Path(home).parents):
        if inner.parent.name == "snapshots":
            return str(inner.parent.parent / "blobs")
    return None


def _check_with_onnx_ir(file: Path, folder: Path, location: str) -> None:
    """Let onnx-ir check the path, as it does before it opens one; of a tensor without elements it reads nothing."""
    # it loads sympy, which takes longer than all the rest of a small model's reading: only for who has such files
    import onnx_ir

    target, blobs = os.path.realpath(file), _cache_beside(os.path.realpath(folder))
    if blobs is not None and _lies_in(target, blobs):
        folder, location = Path(blobs), os.path.relpath(target, blobs)
    base = os.path.abspath(folder)
    shape = onnx_ir.Shape([0])
    onnx_ir.ExternalTensor(location, None, None, onnx_ir.DataType.UINT8, shape=shape, name="", base_dir=base).numpy()


def _check_length(tensor: TensorProto, name: str, place: _Place, size: int) -> None:
    bits = bits_of(tensor.data_type)
    if bits is None:
        raise UsageError(f"{name} is of a type that no file can hold", AGAIN)
    if any(dim < 0 for dim in tensor.dims):
        raise UsageError(f"{name} has a negative dimension", AGAIN)
    needed = -(-math.prod(tensor.dims) * bits // 8)
    taken = needed if place.length is None else place.length
    if taken < needed:
        raise UsageError(f"{name} takes {needed:,} bytes, and {taken:,} of {place.location} are said to hold it", AGAIN)
    if place.offset + taken > size:
        last = place.offset + taken
        raise UsageError(f"{place.location} is cut off: {name} ends at byte {last:,} of its {size:,}", AGAIN)


# -- Opening an ONNX model safely: its signature, its operators, its external data; nothing of it is run ---------------


_OVERRIDABLE: Final = 4
"""The version of the format since which an initialiser that is an input too is a default; before, it had to be one."""


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A model that was opened and found sound; ``proto`` is without its external data, which lie in ``folder``.

    ``inputs`` are those that have to be given, ``optional_inputs`` those that have a default, ``external`` the
    locations of the external data, ``size`` the bytes of all weights, wherever they are. ``opset`` is by domain,
    ``ai.onnx`` for ONNX's own.
    """

    path: str
    folder: str
    proto: ModelProto
    inputs: tuple[Signature, ...]
    optional_inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    opset: dict[str, int]
    sha256: str
    external: tuple[str, ...]
    size: int


def open_model(path: str | os.PathLike[str], *, custom_ops: bool = False, digest: bool = True) -> OnnxModel:
    """Open a model and check it before any engine does.

    Args:
        path: of the ``.onnx`` file; its external data are looked for beside it, and not loaded.
        custom_ops: a library of operators will be given, so that those of unknown domains are no error.
        digest: without it, no SHA-256 is taken, which is a good part of the time.

    Raises:
        UsageError: for no model, a truncated one, operators that are not known, external data that are missing or not
            where they ought to be.
    """
    file = Path(path)
    proto, sha256 = read_model(file, digest=digest)
    _check_text(proto, file)
    opset = opset_of(proto)
    if not proto.graph.output:
        raise UsageError(f"{file} has no outputs, so that there is nothing to look for", AGAIN)
    check_operators(proto, opset, custom_ops=custom_ops)
    folder = str(file.parent)
    external = check_external(proto, folder)
    required, optional = _inputs(proto)
    return OnnxModel(
        path=os.fspath(path),
        folder=folder,
        proto=proto,
        inputs=required,
        optional_inputs=optional,
        outputs=tuple(map(signature_of, proto.graph.output)),
        opset=opset,
        sha256=sha256,
        external=external,
        size=sum(map(_bytes, tensors(proto))),
    )


def _check_text(proto: ModelProto, file: Path) -> None:
    """Names are text: what is not UTF-8 comes as bytes, and is no name."""
    if not all(isinstance(cast("object", text), str) for text in _texts(proto)):
        raise UsageError(f"{file} is damaged (a name in it is no text)", AGAIN)


def _texts(proto: ModelProto) -> Iterator[str]:
    for entry in proto.opset_import:
        yield entry.domain
    for function in proto.functions:
        yield from (function.domain, function.name, *function.input, *function.output)
        for entry in function.opset_import:
            yield entry.domain
    for graph in graphs(proto):
        yield from (held.name for held in (*graph.input, *graph.output, *graph.value_info, *graph.initializer))
        yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node, _ in nodes(proto):
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _inputs(proto: ModelProto) -> tuple[tuple[Signature, ...], tuple[Signature, ...]]:
    """The inputs that have to be given, and those that may be."""
    graph = proto.graph
    weights = {tensor.name for tensor in graph.initializer} | {held.values.name for held in graph.sparse_initializer}
    required = [signature_of(info) for info in graph.input if info.name not in weights]
    optional = [signature_of(info) for info in graph.input if info.name in weights]
    return tuple(required), tuple(optional if proto.ir_version >= _OVERRIDABLE else ())


def _bytes(tensor: TensorProto) -> int:
    bits = bits_of(tensor.data_type)
    if bits is None or any(dim < 0 for dim in tensor.dims):
        return len(tensor.raw_data) + sum(map(len, tensor.string_data))
    return -(-math.prod(tensor.dims) * bits // 8)
