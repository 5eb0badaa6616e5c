"""The executed graph: its nodes, its constants, what reads what, and a stretch of it as a model of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
from onnx import TypeProto, helper, numpy_helper

from whynan.capture.onnx.execution import NCHWC, Node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from whynan.capture.onnx.execution import Tensor


# -- A graph that is executed, main or body: its nodes, its constants, and what reads what -----------------------------


class Executable:
    """The nodes of a graph in the order of execution, and its constants; ``outer`` is the graph around a body."""

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Path,
        graph: onnx.GraphProto | None = None,
        outer: Executable | None = None,
    ) -> None:
        self.model = model
        self.folder = folder
        self.outer = outer
        self.graph = model.graph if graph is None else graph
        opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.nodes = tuple(_node(index, proto, opsets) for index, proto in enumerate(_in_order(self.graph.node)))
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.sparse = {tensor.values.name: tensor for tensor in self.graph.sparse_initializer}
        self.inputs: dict[str, TypeProto] = {value.name: value.type for value in self.graph.input}
        self.outputs = tuple(value.name for value in self.graph.output)
        self._arrays: dict[str, Tensor] = {}
        self._bodies: dict[tuple[int, str], Executable] = {}

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """Of each node, all values that it reads: its inputs, and what its bodies take from the graphs around them."""
        return tuple(tuple(dict.fromkeys(_reads(node.proto))) for node in self.nodes)

    @cached_property
    def last_reads(self) -> dict[str, int]:
        """The last node that reads a value."""
        return {name: index for index, names in enumerate(self.reads) for name in names}

    @cached_property
    def over(self) -> tuple[tuple[str, ...], ...]:
        """Of each node, the values that nothing reads any more when it has run."""
        return tuple(
            tuple(
                name
                for name in dict.fromkeys((*self.reads[node.index], *node.outputs))
                if self.last_reads.get(name, -1) <= node.index and name not in self.outputs
            )
            for node in self.nodes
        )

    @cached_property
    def constant_reads(self) -> tuple[tuple[tuple[str, Executable], ...], ...]:
        """Of each node, the initialisers that it reads, each with the graph that has it."""
        return tuple(
            tuple((name, found[0]) for name in names if (found := self.constant_of(name)) is not None)
            for names in self.reads
        )

    @cached_property
    def constants_left(self) -> tuple[tuple[str, Executable], ...]:
        """The initialisers that leave the graph as they are, each with the graph that has it."""
        found = ((name, self.constant_of(name)) for name in dict.fromkeys(self.outputs) if name not in self.producers)
        return tuple((name, known[0]) for name, known in found if known is not None)

    @cached_property
    def holders(self) -> frozenset[int]:
        """The nodes that hold a body."""
        return frozenset(node.index for node in self.nodes if bodies_of(node.proto))

    @cached_property
    def producers(self) -> dict[str, int]:
        """The node that writes a value."""
        return {name: index for index, node in enumerate(self.nodes) for name in node.outputs if name}

    def is_constant(self, name: str) -> bool:
        """Whether a name is that of an initialiser of this graph."""
        return name in self.constants or name in self.sparse

    def constant_of(self, name: str) -> tuple[Executable, str] | None:
        """The graph, this or one around it, whose initialiser a value is; None where it is none."""
        if self.is_constant(name):
            return self, name
        if self.outer is None or name in self.producers or name in self.inputs:
            return None
        return self.outer.constant_of(name)

    def array(self, name: str) -> Tensor:
        """The elements of an initialiser, which are not to be changed; large ones are only mapped."""
        found = self._arrays.get(name)
        if found is None:
            found = self._arrays[name] = self._load(name)
        return found

    def forget(self) -> None:
        """Let go of the elements of initialisers: what was mapped of them counts as memory."""
        self._arrays.clear()

    def body(self, node: Node, attribute: str) -> Executable:
        """The graph that an attribute of a node holds."""
        key = node.index, attribute
        if key not in self._bodies:
            graph = next(a.g for a in node.proto.attribute if a.name == attribute)
            self._bodies[key] = Executable(self.model, self.folder, graph, self)
        return self._bodies[key]

    def _load(self, name: str) -> Tensor:
        if name in self.sparse:
            return _dense(self.sparse[name])
        tensor = self.constants[name]
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor)
        said = {entry.key: entry.value for entry in tensor.external_data}
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        count = int(np.prod(tensor.dims, dtype=np.int64))
        length = int(said.get("length", count * dtype.itemsize))
        shape = tuple(tensor.dims)
        if count == 0:
            return np.zeros(shape, dtype)
        path = self.folder / said["location"]
        raw = np.memmap(path, np.uint8, "r", offset=int(said.get("offset", 0)), shape=(length,))
        if length == count * dtype.itemsize:
            return np.asarray(raw).view(dtype).reshape(shape)
        # several elements in a byte
        whole = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=shape, raw_data=raw.tobytes())
        return numpy_helper.to_array(whole)


def _in_order(nodes: Sequence[onnx.NodeProto]) -> Sequence[onnx.NodeProto]:
    """Nodes as they can be executed: converters append some to the end, and engines sort them."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needed = {i: [makers[name] for name in _reads(node) if name in makers] for i, node in enumerate(nodes)}
    if all(maker < index for index, made_by in needed.items() for maker in made_by):
        return nodes
    try:
        return [nodes[index] for index in TopologicalSorter(needed).static_order()]
    except CycleError:
        return nodes


def _node(index: int, proto: onnx.NodeProto, opsets: dict[str, int]) -> Node:
    return Node(
        index=index,
        name=proto.name,
        op=proto.op_type,
        domain=proto.domain,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        proto=proto,
        opset=opsets.get(proto.domain),
    )


def bodies_of(proto: Any) -> list[tuple[str, onnx.GraphProto]]:
    """The graphs that a node holds, by the names of their attributes."""
    return [(a.name, a.g) for a in proto.attribute if a.type == onnx.AttributeProto.GRAPH]


def captured(graph: onnx.GraphProto) -> Iterator[str]:
    """The values that a body takes from the graphs around it."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in _reads(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def _reads(proto: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in proto.input if name)
    for _, graph in bodies_of(proto):
        yield from captured(graph)


def _dense(sparse: onnx.SparseTensorProto) -> Tensor:
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def without_weights(path: Path) -> onnx.ModelProto:
    """A model whose weights in files are left there."""
    return cast("Any", onnx).load(path, load_external_data=False)


def drop_duplicate_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model as ONNX Runtime has written it, made whole: in bodies of bodies it leaves constants in twice."""
    for node in model.graph.node:
        for _, body in bodies_of(node):
            _tidy(body)
    return model


def _tidy(graph: onnx.GraphProto) -> None:
    initialisers = {tensor.name for tensor in graph.initializer}
    twice = [n for n in graph.node if n.op_type == "Constant" and n.output[0] in initialisers]
    for node in twice:
        graph.node.remove(node)
    for node in graph.node:
        for _, body in bodies_of(node):
            _tidy(body)


# -- Which node reads a value last, the bodies of If, Loop and Scan included -------------------------------------------


def last_readers(nodes: Sequence[Node]) -> dict[str, int]:
    """The index of the last node of the main graph that reads a value, itself or in a body."""
    found: dict[str, int] = {}
    for node in nodes:
        for name in (*node.inputs, *_read_within(node.proto)):
            if name:
                found[name] = max(node.index, found.get(name, -1))
    return found


def _read_within(proto: Any) -> Iterator[str]:
    for attribute in proto.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            for node in graph.node:
                yield from node.input
                yield from _read_within(node)
            for output in graph.output:
                yield output.name


# -- The nodes of a graph from one to another as a model of their own, all of whose values are outputs -----------------


@dataclass(frozen=True, slots=True)
class TappedModel:
    """A model, what it has to be fed, and the values that its nodes write, which it gives."""

    model: onnx.ModelProto
    feeds: tuple[str, ...]
    values: tuple[str, ...]


def tap_nodes(graph: Executable, begin: int, end: int, types: Mapping[str, TypeProto]) -> TappedModel:
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
    return TappedModel(as_model(graph, body), tuple(value.name for value in inputs), tuple(values))


def as_model(graph: Executable, body: onnx.GraphProto) -> onnx.ModelProto:
    """A model that means by its operators what the model of a graph means."""
    model = onnx.ModelProto(ir_version=graph.model.ir_version, graph=body)
    model.opset_import.extend(graph.model.opset_import)
    if all(entry.domain != NCHWC for entry in model.opset_import) and any(n.domain == NCHWC for n in body.node):
        model.opset_import.append(helper.make_opsetid(NCHWC, 1))
    model.functions.extend(graph.model.functions)
    return model
