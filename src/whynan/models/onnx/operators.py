"""Whether the operators of an ONNX model are known: to the versions that it asks for, or as functions of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import onnx
from onnx import FunctionProto, ModelProto, OperatorSetIdProto, defs

from whynan.errors import UsageError
from whynan.models.onnx.model import AGAIN, NodeInModel, nodes, text_of

Opset = dict[str, int]
"""The version of each domain, by the name that reports use: ``ai.onnx`` where a model says nothing."""

ONNX: Final = "ai.onnx"
_UPGRADE: Final = "upgrade onnx and onnxruntime, or export with an older opset"
_LIBRARY: Final = "give the library that brings it: --custom-ops LIBRARY"
_MICROSOFT: Final = ("com.microsoft", "com.ms.")
"""How the domains of ONNX Runtime's own operators begin."""
_OLDEST: Final = 3
"""The version of the format before which a model does not say which operators it means."""
_OF_ONNX_RUNTIME: Final = frozenset(
    "Affine Crop DisentangledAttention_TRT DynamicSlice EfficientNMS_TRT GRUUnit GivenTensorFill ImageScaler "
    "LayerNormalization MeanVarianceNormalization MemcpyFromHost MemcpyToHost MultilevelCropAndResize_TRT "
    "ParametricSoftplus PyramidROIAlign_TRT Scale ScaledTanh SimplifiedLayerNormalization ThresholdedRelu".split()
)
"""What ONNX Runtime knows in ONNX's own domain, and ONNX does not, or only in later versions."""


def opset_of(proto: ModelProto) -> Opset:
    """The versions that a model asks for; raises ``UsageError`` where they are newer than the installed onnx knows."""
    if proto.ir_version > onnx.IR_VERSION:
        raise UsageError(
            f"the model is of version {proto.ir_version} of the format, and onnx {onnx.__version__} knows "
            f"{onnx.IR_VERSION}",
            _UPGRADE,
        )
    if not proto.opset_import and proto.ir_version < _OLDEST:
        return {ONNX: 1}
    if not proto.opset_import:
        raise UsageError("the model does not say which operators it means (it has no opset_import)", AGAIN)
    opset = _imports(proto.opset_import)
    for function in proto.functions:
        _imports(function.opset_import)
    return opset


def _imports(entries: Iterable[OperatorSetIdProto]) -> Opset:
    known = _newest_versions()
    opset: Opset = {}
    for entry in entries:
        domain = domain_of(entry.domain)
        newest = known.get(domain)
        if newest is not None and entry.version > newest:
            raise UsageError(
                f"the model asks for version {entry.version} of {domain}, and onnx {onnx.__version__} knows {newest}",
                _UPGRADE,
            )
        if newest is not None and entry.version < 1:
            raise UsageError(f"the model asks for version {entry.version} of {domain}, which there never was", AGAIN)
        opset[domain] = entry.version
    return opset


def _newest_versions() -> dict[str, int]:
    """The newest version of each domain that the installed onnx has."""
    versions = cast("Mapping[str, tuple[int, int]]", cast("Any", defs).C.schema_version_map())
    return {domain_of(domain): newest for domain, (_, newest) in versions.items()}


def domain_of(domain: str) -> str:
    """A domain by the name that reports use."""
    return text_of(domain) or ONNX


def _schema_domain(domain: str) -> str:
    """A domain as the table of operators knows it."""
    return "" if domain == ONNX else domain


def check_operators(proto: ModelProto, opset: Opset, *, custom_ops: bool) -> None:
    """Raise ``UsageError`` for the first node whose operator nobody knows.

    Known are those of ONNX in the version that the model asks for, the model's own functions, and whatever is in a
    domain of ONNX Runtime: of that its engine decides. With `custom_ops`, so is every operator that ONNX does not have.
    """
    own = {(domain_of(function.domain), function.name) for function in proto.functions}
    versions = _newest_versions()
    imports = {_key(function): _imports(function.opset_import) for function in proto.functions}
    seen: set[tuple[str, str, int | None]] = set()
    for held in nodes(proto):
        node, function = held
        domain = domain_of(node.domain)
        version = (opset if function is None else imports[_key(function)]).get(domain)
        kind = (domain, node.op_type, version)
        if kind in seen or (domain, node.op_type) in own:
            continue
        seen.add(kind)
        if custom_ops and not defs.has(node.op_type, domain=_schema_domain(domain)):
            continue
        if domain in versions:
            _check_version(held, domain, version)
        elif not domain.startswith(_MICROSOFT):
            raise UsageError(
                f"{_shown(held)} is of the domain {domain}, which is neither ONNX's nor ONNX Runtime's", _LIBRARY
            )


def _key(function: FunctionProto) -> tuple[str, str, str]:
    return function.domain, function.name, function.overload


def _check_version(held: NodeInModel, domain: str, version: int | None) -> None:
    op = held.node.op_type
    if domain == ONNX and op in _OF_ONNX_RUNTIME:
        return
    if version is None:
        raise UsageError(
            f"{_shown(held)} is of the domain {domain}, and the model does not say of which version", AGAIN
        )
    within = _schema_domain(domain)
    if defs.has(op, max_inclusive_version=version, domain=within):
        return
    if not defs.has(op, domain=within):
        raise UsageError(f"{_shown(held)} is of no operator that onnx {onnx.__version__} knows in {domain}", _UNKNOWN)
    first = min(s.since_version for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (op, within))
    raise UsageError(
        f"{_shown(held)} needs version {first} of {domain}, and the model asks for {version}",
        f"export it again with opset {first} or newer",
    )


_UNKNOWN: Final = "upgrade onnx, or give the library that brings it: --custom-ops LIBRARY"


def _shown(held: NodeInModel) -> str:
    node = held.node
    named = node.name or next(filter(None, node.output), "")
    return f"the node {named} ({node.op_type})" if named else f"a node without a name ({node.op_type})"
