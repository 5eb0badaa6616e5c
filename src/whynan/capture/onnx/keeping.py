"""The nodes that bore bad numbers, kept whole: what they read and wrote, each as a model of its own."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from whynan.capture.onnx.execution import NCHWC
from whynan.capture.onnx.masks import is_array
from whynan.capture.onnx.values import element_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.records import Finding
    from whynan.traces import Birth

BUDGET: Final = 256 << 20
"""Bytes of nodes that are kept."""
PUBLIC: Final = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""The domains of operators that come with ONNX and ONNX Runtime."""
_FEW: Final = 1024
"""Integers of at most so many elements are part of the model: some kernels want them constant."""


@dataclass(frozen=True, slots=True)
class KeptNode:
    """One node that bore bad numbers; of one that cannot be kept only ``why``. An input left out is None."""

    births: tuple[Birth, ...]
    node: Node
    why: str | None = None
    inputs: tuple[Tensor | None, ...] = ()
    outputs: tuple[Tensor | None, ...] = field(default_factory=tuple)


class NodeKeeper:
    """Keeps the nodes that bore bad numbers, the earliest first, within a budget of bytes."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.room = budget
        self._kept: list[KeptNode] = []

    def keep(self, births: Sequence[Birth], node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keep a node that has borne something."""
        born = tuple(b for b in births if b.label_kind == "birth" and b.event.op is not None)
        if not born:
            return
        why = _refused(node, [*inputs, *outputs])
        size = sum(int(getattr(value, "nbytes", 0)) for value in (*inputs, *outputs))
        if why is None and size > self.room:
            why = f"it takes {size:,} bytes, and there is room for {self.room:,}"
        if why is not None:
            self._kept.append(KeptNode(born, node, why))
            return
        self.room -= size
        self._kept.append(KeptNode(born, node, None, _copied(inputs), _copied(outputs)))

    def of(self, finding: Finding) -> tuple[KeptNode, Birth] | None:
        """The node that bore what a finding tells of, and the birth."""
        told = ((k, b) for k in self._kept for b in k.births if b.element is finding.element)
        return next(told, None)


def as_model(kept: KeptNode, whole: onnx.ModelProto) -> onnx.ModelProto:
    """A node as a model of its own, of the versions of the model that it stands in; its values are ``x0``, ``y0``."""
    proto = onnx.NodeProto()
    proto.CopyFrom(kept.node.proto)
    for name in ("name", "doc_string", "metadata_props"):
        proto.ClearField(name)
    names = [f"x{n}" if value is not None else "" for n, value in enumerate(kept.inputs)]
    written = [f"y{n}" if value is not None else "" for n, value in enumerate(kept.outputs)]
    del proto.input[:], proto.output[:]
    proto.input.extend(names)
    proto.output.extend(written)
    given = [(n, v) for n, v in zip(names, kept.inputs, strict=True) if v is not None]
    body = helper.make_graph(
        [proto],
        "alone",
        [_info(name, value) for name, value in given if not is_constant(value)],
        [_info(name, value) for name, value in zip(written, kept.outputs, strict=True) if value is not None],
        [numpy_helper.from_array(value, name) for name, value in given if is_constant(value)],
    )
    domains = {proto.domain, ""}
    imports = [entry for entry in whole.opset_import if entry.domain in domains]
    if proto.domain not in {entry.domain for entry in imports}:
        imports.append(helper.make_opsetid(proto.domain, kept.node.opset or 1))
    return helper.make_model(body, opset_imports=imports, ir_version=whole.ir_version)


def is_constant(value: Tensor) -> bool:
    """Whether a value is part of the model, and not fed to it."""
    return value.dtype.kind in "iub" and value.size <= _FEW


def _info(name: str, value: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type(value), value.shape)


def _refused(node: Node, values: Sequence[Value]) -> str | None:
    if node.domain == NCHWC:
        return "the engine has made it of others, and no other model can have it; --graph original packs those"
    if node.domain not in PUBLIC:
        return f"it is an operator of the domain {node.domain}, which needs the library that brings it"
    if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.proto.attribute):
        return "it holds a graph of its own"
    if not all(value is None or (is_array(value) and not isinstance(value, list)) for value in values):
        return "one of its values is no tensor of numbers"
    return None


def _copied(values: Sequence[Value]) -> tuple[Any, ...]:
    return tuple(None if value is None else np.array(np.asarray(value), order="C") for value in values)
