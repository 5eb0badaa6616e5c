"""Opening an ONNX model safely: its signature, its operators, its external data; nothing of it is run."""

# pyright: strict

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from whynan.errors import UsageError
from whynan.models.onnx_external import check_external as check_external
from whynan.models.onnx_files import AGAIN, read_model
from whynan.models.onnx_operators import check_operators, opset_of
from whynan.models.onnx_types import Signature as Signature
from whynan.models.onnx_types import bits_of, signature_of
from whynan.models.onnx_walking import graphs, nodes, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import ModelProto, TensorProto

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


def open_model(path: str | os.PathLike[str], *, custom_ops: bool = False) -> OnnxModel:
    """Open a model and check it before any engine does.

    Args:
        path: of the ``.onnx`` file; its external data are looked for beside it, and not loaded.
        custom_ops: a library of operators will be given, so that those of unknown domains are no error.

    Raises:
        UsageError: for no model, a truncated one, operators that are not known, external data that are missing or not
            where they ought to be.
    """
    file = Path(path)
    proto, sha256 = read_model(file)
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
