"""A single node: run by itself on any values, and kept whole where it bore a bad number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from whynan.capture.onnx.arrays import (
    element_type,
    engine_message,
    kind_of,
    make_ort_value,
    read_ort_value,
    run_session,
    same_bits,
)
from whynan.capture.onnx.counts import is_array
from whynan.capture.onnx.execution import NCHWC, RunError
from whynan.capture.onnx.graph.executed import as_model
from whynan.capture.onnx.sessions import open_exact_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import TypeProto

    from whynan.capture.onnx.execution import Node, Tensor, Value
    from whynan.capture.onnx.graph.executed import Executable
    from whynan.capture.onnx.runner import Walk
    from whynan.records import Finding
    from whynan.traces import Birth


# -- One node of an executed graph by itself, on any values, as the engine ran it in the graph -------------------------


_MOST: Final = 512
"""Sessions that are kept."""


class LoneNodes:
    """Runs nodes by themselves, each in a session of its own, which is kept for the next time."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._sessions: dict[Any, Any] = {}

    def __call__(self, node: Node, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a node, in the order of its names; raises ``RuntimeError`` where that cannot be done."""
        graph = self._walk.owners.get(id(node.proto))
        if graph is None:
            raise RuntimeError(f"{node.op} {node.name} is no node of the executed graph")
        try:
            return self._run(graph, node, inputs)
        except RunError as error:
            raise RuntimeError(error.what) from None
        except Exception as error:
            # whatever an engine and its bindings make of values that the graph never gave them
            raise RuntimeError(engine_message(error)) from None

    def _run(self, graph: Executable, node: Node, inputs: Sequence[Value]) -> list[Value]:
        constants: list[str] = []
        fed: dict[str, tuple[Value, TypeProto]] = {}
        for name, value in zip(node.inputs, inputs, strict=True):
            if not name or name in constants:
                continue
            if self._is_constant(graph, name, value):
                constants.append(name)
            else:
                fed[name] = value, self._kind(name, value)
        for name in graph.reads[node.index]:
            # what a body reads of the graphs around it
            if name not in node.inputs:
                self._around(graph, name, constants, fed)
        kinds = tuple((name, kind.SerializeToString()) for name, (_, kind) in fed.items())
        key = id(node.proto), tuple(constants), kinds
        session = self._sessions.get(key)
        if session is None:
            session = self._opened(graph, node, constants, {n: kind for n, (_, kind) in fed.items()})
            if len(self._sessions) >= _MOST:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[key] = session
        given = {name: make_ort_value(value, kind) for name, (value, kind) in fed.items()}
        found = run_session(session, [name for name in node.outputs if name], given)
        results = iter(found)
        # an own copy: the next run of the session may use the memory again
        return [_kept(read_ort_value(next(results))) if name else None for name in node.outputs]

    def _is_constant(self, graph: Executable, name: str, value: Value) -> bool:
        here = self._walk.here
        found = graph.constant_of(name)
        if found is None or (here is not None and here.has(name)):
            return False
        constant = found[0].array(found[1])
        return constant is value or same_bits(constant, value)

    def _kind(self, name: str, value: Value) -> TypeProto:
        here = self._walk.here
        if here is not None and here.has(name):
            kind = here.kind(name)
            # of all else the value given may be of another type than the one that was there
            if value is None or isinstance(value, list) or kind.HasField("optional_type"):
                return kind
        return kind_of(value)

    def _around(
        self, graph: Executable, name: str, constants: list[str], fed: dict[str, tuple[Value, TypeProto]]
    ) -> None:
        here = self._walk.here
        if here is not None and here.has(name):
            fed[name] = here.observed_value(name), here.kind(name)
        elif graph.constant_of(name) is not None:
            constants.append(name)
        else:
            raise RuntimeError(f"the value {name} is gone")

    def _opened(
        self,
        graph: Executable,
        node: Node,
        constants: Sequence[str],
        kinds: dict[str, TypeProto],
    ) -> Any:
        holders = [graph.constant_of(name) for name in constants]
        owners = [holder[0] for holder in holders if holder is not None]
        body = helper.make_graph(
            [node.proto],
            "alone",
            [onnx.ValueInfoProto(name=name, type=kind) for name, kind in kinds.items()],
            [onnx.ValueInfoProto(name=name) for name in node.outputs if name],
            [o.constants[name] for o, name in zip(owners, constants, strict=True) if name in o.constants],
            sparse_initializer=[o.sparse[n] for o, n in zip(owners, constants, strict=True) if n in o.sparse],
        )
        return open_exact_session(self._walk.settings, self._walk.serialise_model(as_model(graph, body)), apart=True)


def _kept(value: Value) -> Value:
    return np.array(value) if isinstance(value, np.ndarray) else value


# -- The nodes that bore bad numbers, kept whole: what they read and wrote, each as a model of its own -----------------


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

    def node_of_finding(self, finding: Finding) -> tuple[KeptNode, Birth] | None:
        """The node that bore what a finding tells of, and the birth."""
        told = ((k, b) for k in self._kept for b in k.births if b.element is finding.element)
        return next(told, None)


def single_node_model(kept: KeptNode, whole: onnx.ModelProto) -> onnx.ModelProto:
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
