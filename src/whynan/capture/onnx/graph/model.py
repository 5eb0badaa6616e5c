"""A model's graph as operations and values: local functions are opened up, bodies of If, Loop and Scan are graphs."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from whynan.ops.table import ONNX

if TYPE_CHECKING:
    import onnx

MOST: Final = 2_000_000
"""Operations that functions are opened up into; calls beyond are kept as they are."""
DEEPEST: Final = 64
"""Calls within calls that are opened up."""
_SHAPES: Final = frozenset("Shape Size".split())
_SMALL: Final = 512
"""Bytes of a constant up to which two of equal content are known as one."""
_LARGE: Final = 65536
"""Bytes of a node from which its attributes are compared as they stand."""


@dataclass(eq=False, slots=True, repr=False)
class Value:
    """One value of one graph, as it or the function around it, told as ``domain::name``, names it.

    ``constant``: known before the model runs. ``shape_only``: made of nothing but the shapes of other values.
    """

    name: str
    graph: Graph
    maker: Operation | None = None
    function: str | None = None
    calls: tuple[str, ...] = ()
    constant: bool = False
    shape_only: bool = False
    content: bytes | None = None
    readers: list[Operation] = field(default_factory=lambda: [])


@dataclass(eq=False, slots=True, repr=False)
class Operation:
    """One node. ``metadata`` is its own, then that of the calls around it, from the innermost outwards.

    ``captured`` are the values around it that its bodies read; ``calls`` names the calls of functions that it is in.
    """

    index: int
    name: str
    op: str
    domain: str
    graph: Graph
    proto: Any
    metadata: tuple[Mapping[str, str], ...] = ()
    calls: tuple[str, ...] = ()
    inputs: tuple[Value | None, ...] = ()
    outputs: tuple[Value | None, ...] = ()
    captured: tuple[Value, ...] = ()
    bodies: dict[str, Graph] = field(default_factory=lambda: {})
    attributes: bytes = b""

    def reads(self) -> Iterator[Value]:
        """All that it needs: its inputs and what its bodies read of the graph around it."""
        yield from (value for value in self.inputs if value is not None)
        yield from self.captured

    def writes(self) -> Iterator[Value]:
        """Its outputs, without those that are left out."""
        yield from (value for value in self.outputs if value is not None)


@dataclass(eq=False, slots=True, repr=False)
class Graph:
    """A graph or a body. ``values`` are its own by name, ``hidden`` those in the functions that it calls."""

    outer: Graph | None = None
    name: str = ""
    operations: list[Operation] = field(default_factory=lambda: [])
    values: dict[str, Value] = field(default_factory=lambda: {})
    hidden: list[Value] = field(default_factory=lambda: [])
    inputs: list[Value] = field(default_factory=lambda: [])
    outputs: list[Value | None] = field(default_factory=lambda: [])
    captured: dict[Value, None] = field(default_factory=lambda: {})


_Names = ChainMap[str, Value]


@dataclass(frozen=True, slots=True)
class _Around:
    """The function that is being opened up: its name, its calls, their metadata, the attributes it was called with."""

    function: str | None = None
    metadata: tuple[Mapping[str, str], ...] = ()
    calls: tuple[str, ...] = ()
    open: frozenset[tuple[str, str, str]] = frozenset()
    attributes: Mapping[str, Any] = field(default_factory=lambda: {})


class _Builder:
    def __init__(self, model: onnx.ModelProto | _Listed) -> None:
        self._functions = {(_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self._left = MOST

    def graph(self, proto: Any, outer: Graph | None, names: _Names, around: _Around) -> Graph:
        graph = Graph(outer, proto.name)
        for given in proto.input:
            graph.inputs.append(self._own(graph, names, given.name, around))
        for tensor in proto.initializer:
            self._own(graph, names, tensor.name, around, constant=True).content = _content(tensor)
        for sparse in proto.sparse_initializer:
            self._own(graph, names, sparse.values.name, around, constant=True)
        self._nodes(graph, proto.node, names, around)
        graph.outputs = [self._seen(graph, names, output.name) for output in proto.output]
        return graph

    def _own(self, graph: Graph, names: _Names, name: str, around: _Around, *, constant: bool = False) -> Value:
        held = names.maps[0].get(name)
        if held is None or held.graph is not graph:
            held = Value(name, graph, function=around.function, calls=around.calls)
            names[name] = held
            self._keep(graph, held, around)
        held.constant = held.constant or constant
        return held

    def _keep(self, graph: Graph, value: Value, around: _Around) -> None:
        if (graph.outer is None and around.function is not None) or value.name in graph.values:
            graph.hidden.append(value)
        else:
            graph.values[value.name] = value

    def _nodes(self, graph: Graph, nodes: Sequence[Any], names: _Names, around: _Around) -> None:
        made = [tuple(self._output(graph, names, name, around) for name in node.output) for node in nodes]
        for node, outputs in zip(nodes, made, strict=True):
            inputs = tuple(self._seen(graph, names, name) for name in node.input)
            key = (_domain(node.domain), node.op_type, getattr(node, "overload", ""))
            function = self._functions.get(key)
            if function is None or key in around.open or len(around.open) >= DEEPEST or self._left < len(function.node):
                self._operation(graph, node, inputs, outputs, names, around)
            else:
                self._call(graph, node, function, key, inputs, outputs, around)

    def _output(self, graph: Graph, names: _Names, name: str, around: _Around) -> Value | None:
        if not name:
            return None
        held = names.maps[0].get(name)
        return held if held is not None else self._own(graph, names, name, around)

    def _seen(self, graph: Graph, names: _Names, name: str) -> Value | None:
        if not name:
            return None
        value = names.get(name)
        if value is None:  # not a sound model: the name stands for itself
            value = Value(name, graph)
            names[name] = value
        if value.graph is not graph:
            graph.captured[value] = None
        return value

    def _operation(
        self,
        graph: Graph,
        node: Any,
        inputs: tuple[Value | None, ...],
        outputs: tuple[Value | None, ...],
        names: _Names,
        around: _Around,
    ) -> None:
        metadata = ({entry.key: entry.value for entry in node.metadata_props}, *around.metadata)
        index = len(graph.operations)
        op = Operation(index, node.name, node.op_type, _domain(node.domain), graph, node, metadata, around.calls)
        op.inputs, op.outputs = inputs, outputs
        captured: dict[Value, None] = {}
        for attribute in node.attribute:
            if attribute.HasField("g"):
                body = self.graph(attribute.g, graph, names.new_child(), around)
                op.bodies[attribute.name] = body
                captured |= body.captured
        op.captured = tuple(captured)
        op.attributes = _attributes(node, around)
        graph.captured.update((value, None) for value in captured if value.graph is not graph)
        self._left -= 1
        graph.operations.append(op)
        _wire(op)

    def _call(
        self,
        graph: Graph,
        node: Any,
        function: Any,
        key: tuple[str, str, str],
        inputs: tuple[Value | None, ...],
        outputs: tuple[Value | None, ...],
        around: _Around,
    ) -> None:
        metadata = ({entry.key: entry.value for entry in node.metadata_props}, *around.metadata)
        given = {a.name: a for a in function.attribute_proto} | {a.name: _resolved(a, around) for a in node.attribute}
        inside = _Around(
            f"{function.domain}::{function.name}",
            metadata,
            (node.name or next((name for name in node.output if name), node.op_type), *around.calls),
            around.open | {key},
            {name: attribute for name, attribute in given.items() if attribute is not None},
        )
        names: _Names = ChainMap({})
        names.update(
            {name: value for name, value in zip(function.input, inputs, strict=False) if value is not None and name}
        )
        handed = dict(names)
        names.update(
            {
                name: value
                for name, value in zip(function.output, outputs, strict=False)
                if value is not None and name not in handed
            }
        )
        self._nodes(graph, function.node, names, inside)
        for name, value in zip(function.output, outputs, strict=False):
            if value is not None and name in handed:  # an input that is handed back as it came
                self._copy(graph, node, handed[name], value, inside)

    def _copy(self, graph: Graph, node: Any, source: Value, target: Value, around: _Around) -> None:
        op = Operation(len(graph.operations), node.name, "Identity", "", graph, node, around.metadata, around.calls)
        op.inputs, op.outputs = (source,), (target,)
        graph.operations.append(op)
        _wire(op)


def inline_functions(model: onnx.ModelProto) -> Graph:
    """The main graph of a model, with its functions opened up in place of their calls."""
    graph = _Builder(model).graph(model.graph, None, ChainMap({}), _Around())
    refresh_constants(graph)
    return graph


def listed(nodes: Sequence[Any], given: Sequence[str], left: Sequence[str]) -> Graph:
    """A main graph of which only the nodes are known, and the names of its inputs and outputs.

    What is read and written by none of them is constant.
    """
    proto = _Listed(nodes, given, left)
    graph = _Builder(_Listed((), (), ())).graph(proto, None, ChainMap({}), _Around())
    refresh_constants(graph)
    return graph


@dataclass(frozen=True, slots=True)
class _Name:
    name: str

    data_location = 1  # elsewhere


class _Listed:
    """What is read of a graph and of a model, of one of which only the nodes are at hand."""

    name = ""
    functions: Sequence[Any] = ()
    sparse_initializer: Sequence[Any] = ()

    def __init__(self, nodes: Sequence[Any], given: Sequence[str], left: Sequence[str]) -> None:
        self.node = nodes
        read, written = set[str](), set(given)
        for node in nodes:
            _free(node, read)
            written.update(node.output)
        self.input = [_Name(name) for name in given]
        self.output = [_Name(name) for name in left]
        self.initializer = [_Name(name) for name in sorted(read - written) if name]


def _free(node: Any, read: set[str]) -> None:
    """The names that a node reads, and its bodies of the graph around it."""
    read.update(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner: set[str] = set()
            own = {v.name for v in (*attribute.g.input, *attribute.g.initializer)}
            for inside in attribute.g.node:
                _free(inside, inner)
                own.update(inside.output)
            read.update((inner | {v.name for v in attribute.g.output}) - own)


def refresh_constants(graph: Graph) -> None:
    """Find anew what is constant and what hangs on shapes alone, in a graph and all its bodies."""
    for op in graph.operations:
        for body in op.bodies.values():
            refresh_constants(body)
        constant = _constant(op)
        live = [value for value in op.reads() if not value.constant]
        shape_only = op.op in _SHAPES or (bool(live) and not op.captured and all(v.shape_only for v in live))
        for value in op.writes():
            value.constant = constant
            value.shape_only = shape_only


def graph_and_bodies(graph: Graph) -> Iterator[Graph]:
    """A graph and all its bodies, from the outside in."""
    yield graph
    for op in graph.operations:
        for body in op.bodies.values():
            yield from graph_and_bodies(body)


def live_operations(graph: Graph) -> set[Operation]:
    """The operations of this graph, not of its bodies, that an output hangs on and that are not constant."""
    waiting = [value for value in graph.outputs if value is not None]
    found: set[Operation] = set()
    while waiting:
        maker = waiting.pop().maker
        if maker is None or maker in found or maker.graph is not graph or all(v.constant for v in maker.writes()):
            continue
        found.add(maker)
        waiting.extend(maker.reads())
    return found


def value_aliases(graph: Graph) -> dict[Value, Value]:
    """For each value that surely holds what another one holds, that other: copies, and calculations done twice."""
    found: dict[Value, Value] = {}
    first: dict[tuple[Any, ...], Operation] = {}
    content: dict[bytes, Value] = {}
    for value in graph.values.values():
        if value.content is not None:
            found[value] = content.setdefault(value.content, value)
    for op in graph.operations:
        if op.op == "Identity" and not op.domain and op.inputs and op.inputs[0] is not None:
            found.update((value, found.get(op.inputs[0], op.inputs[0])) for value in op.writes())
            continue
        if op.bodies or op.op in ONNX.having("random") or (op.op == "Constant" and len(op.attributes) > _SMALL):
            continue
        inputs = tuple(None if value is None else id(found.get(value, value)) for value in op.inputs)
        kept = tuple(value is not None for value in op.outputs)
        twin = first.setdefault((op.op, op.domain, op.attributes, inputs, kept), op)
        if twin is not op:
            for mine, other in zip(op.outputs, twin.outputs, strict=True):
                if mine is not None and other is not None:
                    found[mine] = found.get(other, other)
    return {value: other for value, other in found.items() if value is not other}


def _wire(op: Operation) -> None:
    for value in dict.fromkeys(op.reads()):
        value.readers.append(op)
    for value in op.writes():
        value.maker = op


def _constant(op: Operation) -> bool:
    if op.op == "Constant" and not op.domain:
        return True
    inputs = [value for value in op.inputs if value is not None]
    return (
        bool(inputs)
        and not op.bodies
        and op.op not in ONNX.having("random")
        and all(value.constant for value in inputs)
    )


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _resolved(attribute: Any, around: _Around) -> Any:
    """An attribute of a node in a function, where it stands for one that the function was called with."""
    return around.attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute


def _attributes(node: Any, around: _Around) -> bytes:
    """What tells the attributes of two nodes apart; bodies are left out."""
    if node.ByteSize() > _LARGE:
        return b"\0".join(a.SerializeToString(deterministic=True) for a in node.attribute if not a.HasField("g"))
    parts: list[bytes] = []
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        given = _resolved(attribute, around)
        if given is None or given.HasField("g") or given.graphs:
            continue
        copy = type(given)()
        copy.CopyFrom(given)
        copy.name = attribute.name
        copy.ClearField("doc_string")
        if copy.HasField("t"):
            copy.t.ClearField("name")
        parts.append(copy.SerializeToString(deterministic=True))
    return b"\0".join(parts)


def _content(tensor: Any) -> bytes | None:
    if tensor.data_location or tensor.ByteSize() > _SMALL:
        return None
    copy = type(tensor)()
    copy.CopyFrom(tensor)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    return copy.SerializeToString(deterministic=True)
