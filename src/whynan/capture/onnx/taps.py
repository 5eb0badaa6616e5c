"""The nodes of a graph from one to another as a model of their own, all of whose values are outputs."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from whynan.capture.onnx.execution import NCHWC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import TypeProto

    from whynan.capture.onnx.executable import Executable


@dataclass(frozen=True, slots=True)
class Tapped:
    """A model, what it has to be fed, and the values that its nodes write, which it gives."""

    model: onnx.ModelProto
    feeds: tuple[str, ...]
    values: tuple[str, ...]


def tapped(graph: Executable, begin: int, end: int, types: Mapping[str, TypeProto]) -> Tapped:
    """The nodes from ``begin`` to before ``end``; ``types`` are those of the values that come from before."""
    nodes = [graph.nodes[i].proto for i in range(begin, end)]
    written = {name for node in nodes for name in node.output if name}
    read = dict.fromkeys(name for i in range(begin, end) for name in graph.reads[i] if name not in written)
    constants: dict[str, onnx.TensorProto] = {}
    sparse: dict[str, onnx.SparseTensorProto] = {}
    inputs: list[onnx.ValueInfoProto] = []
    for name in read:
        found = graph.constant_of(name)
        # an initialiser that is an input too may have been given another value
        if found is not None and name not in types:
            owner = found[0]
            if name in owner.constants:
                constants[name] = owner.constants[name]
            else:
                sparse[name] = owner.sparse[name]
        else:
            inputs.append(onnx.ValueInfoProto(name=name, type=types[name]))
    values = [name for node in nodes for name in node.output if name]
    body = helper.make_graph(
        nodes,
        graph.graph.name or "graph",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in values],
        list(constants.values()),
        sparse_initializer=list(sparse.values()),
    )
    return Tapped(as_model(graph, body), tuple(value.name for value in inputs), tuple(values))


def as_model(graph: Executable, body: onnx.GraphProto) -> onnx.ModelProto:
    """A model that means by its operators what the model of a graph means."""
    model = onnx.ModelProto(ir_version=graph.model.ir_version, graph=body)
    model.opset_import.extend(graph.model.opset_import)
    if all(entry.domain != NCHWC for entry in model.opset_import) and any(n.domain == NCHWC for n in body.node):
        model.opset_import.append(helper.make_opsetid(NCHWC, 1))
    model.functions.extend(graph.model.functions)
    return model
