"""The nodes of a graph from one to another as a model of their own, all of whose values are outputs."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import onnx
from onnx import helper

from whynan.capture.onnx.blocks import FLAT, NCHWC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import TypeProto

    from whynan.capture.onnx.blocks import Blocks
    from whynan.capture.onnx.executable import Executable

_PLAIN: Final = "/whynan plain"


@dataclass(frozen=True, slots=True)
class Tapped:
    """A model, what it has to be fed, and under which name it gives each value that its nodes write.

    ``plain`` are the names under which values that it keeps in blocks of channels are given as they are meant, where
    these are filled up; ``laid`` are those that are read as they lie, with the size of their blocks.
    """

    model: onnx.ModelProto
    feeds: tuple[str, ...]
    values: tuple[str, ...]
    plain: dict[str, str]
    laid: dict[str, int]

    @property
    def fetches(self) -> tuple[str, ...]:
        """The outputs of the model that are asked for."""
        return (*self.values, *self.plain.values())


def tapped(
    graph: Executable,
    begin: int,
    end: int,
    types: Mapping[str, TypeProto],
    blocks: Blocks | None = None,
    unseen: frozenset[str] = frozenset(),
) -> Tapped:
    """The nodes from ``begin`` to before ``end``; ``types`` are those of the values that come from before.

    Values that are kept in ``blocks`` that are filled up are turned into what they mean, and leave as they are only
    where a node after ``end`` reads them. Values that are ``unseen`` are no outputs.
    """
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
    seen = [name for node in nodes for name in node.output if name and name not in unseen]
    blocked = [name for name in seen if blocks is not None and name in blocks.channels]
    laid = {name: size for name in blocked if blocks is not None and (size := blocks.laid(name))}
    plain = {name: name + _PLAIN for name in blocked if name not in laid}
    later = {name for name in plain if graph.last_reads.get(name, -1) >= end or name in graph.outputs}
    values = [name for name in seen if name not in plain or name in later]
    turning = [] if blocks is None else [n for name in plain for n in blocks.turn(name, plain[name])]
    body = helper.make_graph(
        [*nodes, *turning],
        graph.graph.name or "graph",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in (*values, *plain.values())],
        [*constants.values(), *([FLAT] if blocks is not None and any(name in blocks.five for name in plain) else [])],
        sparse_initializer=list(sparse.values()),
    )
    return Tapped(as_model(graph, body), tuple(value.name for value in inputs), tuple(values), plain, laid)


def as_model(graph: Executable, body: onnx.GraphProto) -> onnx.ModelProto:
    """A model that means by its operators what the model of a graph means."""
    model = onnx.ModelProto(ir_version=graph.model.ir_version, graph=body)
    model.opset_import.extend(graph.model.opset_import)
    if all(entry.domain != NCHWC for entry in model.opset_import) and any(n.domain == NCHWC for n in body.node):
        model.opset_import.append(helper.make_opsetid(NCHWC, 1))
    model.functions.extend(graph.model.functions)
    return model
