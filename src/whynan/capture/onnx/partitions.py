"""Providers that compile subgraphs: what each has compiled is one node of the executed graph, seen at its borders.

A partition stands in the graph as the call of a local function with its nodes. In whatever session such a call runs,
the provider finds the very nodes again, with no more outputs than they had, and compiles them once more.
"""

# pyright: strict

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import onnx
from onnx import helper

from whynan.capture.onnx.executable import bodies_of, captured
from whynan.capture.onnx.execution import COMPILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_IR: Final = 8
"""The first version of the format with local functions."""
_BARE_IR: Final = 4
"""Before this version initialisers were inputs too, and constant all the same."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes, by name and by type, that a provider runs as one."""

    provider: str
    names: frozenset[str]
    ops: tuple[str, ...]


def partitions_of(session: Any) -> tuple[Partition, ...] | None:
    """What the providers of a session compiled of several nodes; None where the engine does not tell (before 1.24)."""
    asked = getattr(session, "get_provider_graph_assignment_info", None)
    if asked is None:
        return None
    found: list[Partition] = []
    for part in asked():
        nodes = list(part.get_nodes())
        if len(nodes) > 1:
            ops = tuple(sorted(str(node.op_type) for node in nodes))
            found.append(Partition(str(part.ep_name), frozenset(str(node.name) for node in nodes), ops))
    return tuple(found)


def alike(some: Iterable[Partition], others: Iterable[Partition]) -> bool:
    """Whether the same providers compiled nodes of the same types together, whatever the nodes are called."""
    return Counter((p.provider, p.ops) for p in some) == Counter((p.provider, p.ops) for p in others)


def named(model: onnx.ModelProto) -> frozenset[str]:
    """Give each node of a graph and of its bodies a name of its own; gives the names that were made up for it."""
    nodes = list(_everywhere(model.graph))
    count = Counter(node.name for node in nodes)
    taken = set(count)
    made: set[str] = set()
    for number, node in enumerate(nodes):
        if node.name and count[node.name] == 1:
            continue
        name = f"whynan {number} {node.name}"
        while name in taken:
            name += "_"
        taken.add(name)
        made.add(name)
        node.name = name
    return frozenset(made)


def folded(model: onnx.ModelProto, partitions: Sequence[Partition], made: frozenset[str]) -> onnx.ModelProto:
    """The model with one node in place of each partition, without the names that were made up."""
    _Folding(model, partitions).fold(model.graph)
    for graph_nodes in (_everywhere(model.graph), *(function.node for function in model.functions)):
        for node in graph_nodes:
            if node.name in made:
                node.name = ""
    if model.functions:
        if model.ir_version < _BARE_IR:
            constant = {tensor.name for tensor in model.graph.initializer}
            kept = [value for value in model.graph.input if value.name not in constant]
            del model.graph.input[:]
            model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, _IR)
        model.opset_import.append(helper.make_opsetid(COMPILED, 1))
    return model


def provider_of(proto: onnx.NodeProto) -> str | None:
    """Which provider compiled the nodes that one stands for; None for any other node."""
    return proto.op_type.rpartition(" ")[2] if proto.domain == COMPILED else None


class _Folding:
    def __init__(self, model: onnx.ModelProto, partitions: Sequence[Partition]) -> None:
        self._model = model
        self._owner = {name: number for number, part in enumerate(partitions) for name in part.names}
        self._partitions = partitions
        self._count = 0

    def fold(self, graph: onnx.GraphProto) -> None:
        groups: dict[int, list[onnx.NodeProto]] = {}
        for node in graph.node:
            owner = self._owner.get(node.name)
            if owner is None:
                for _, body in bodies_of(node):
                    self.fold(body)
            else:
                groups.setdefault(owner, []).append(node)
        if not groups:
            return
        calls = {owner: self._called(graph, owner, nodes) for owner, nodes in groups.items()}
        placed: dict[int, onnx.NodeProto] = {}
        for index, node in enumerate(graph.node):
            owner = self._owner.get(node.name)
            if owner is None:
                placed[index] = node
            elif owner in calls:
                placed[index] = calls.pop(owner)
        ordered = in_order(list(placed.values()))
        copies = [_copy(node) for node in ordered]
        del graph.node[:]
        graph.node.extend(copies)

    def _called(self, graph: onnx.GraphProto, owner: int, nodes: Sequence[onnx.NodeProto]) -> onnx.NodeProto:
        """A call of a function that holds the nodes; it gives what something outside of them reads, and no more."""
        inside = {id(node) for node in nodes}
        written = [name for node in nodes for name in node.output if name]
        outside = {name for node in graph.node if id(node) not in inside for name in reads(node)}
        outside.update(value.name for value in graph.output)
        own = set(written)
        inputs = list(dict.fromkeys(name for node in nodes for name in reads(node) if name not in own))
        outputs = [name for name in written if name in outside]
        op = self._title(owner, len(nodes))
        function = helper.make_function(
            COMPILED, op, inputs, outputs, [_copy(node) for node in nodes], list(self._model.opset_import)
        )
        self._model.functions.append(function)
        return helper.make_node(op, inputs, outputs, name=op, domain=COMPILED)

    def _title(self, owner: int, nodes: int) -> str:
        self._count += 1
        provider = self._partitions[owner].provider
        total = len(self._partitions)
        what = f"{nodes:,} nodes compiled by {provider}"
        return f"partition {self._count} of {total}, {what}" if total > 1 else f"partition of {what}"


def in_order(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Each node after those that write what it reads, and otherwise in the order in which they stand."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    found: dict[int, None] = {}
    opened: set[int] = set()
    waiting = list(reversed(range(len(nodes))))
    while waiting:
        index = waiting[-1]
        before = [makers[name] for name in reads(nodes[index]) if name in makers and makers[name] not in found]
        if index in found or index in opened or not before:
            found.setdefault(index)
            waiting.pop()
        else:
            opened.add(index)
            waiting.extend(reversed(before))
    return [nodes[index] for index in found]


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """All values that a node reads, those that its bodies take from around them included."""
    yield from (name for name in node.input if name)
    for _, body in bodies_of(node):
        yield from captured(body)


def _everywhere(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for _, body in bodies_of(node):
            yield from _everywhere(body)


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    # a node that is taken out of a list is gone with it
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy
