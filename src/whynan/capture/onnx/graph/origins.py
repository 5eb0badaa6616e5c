"""Which nodes of the model as written each executed node was made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whynan.capture.onnx.graph import names
from whynan.capture.onnx.graph.model import Graph, Operation, Value, graph_and_bodies, live_operations
from whynan.capture.onnx.graph.pairing import Pairing
from whynan.ops.table import ONNX


@dataclass(frozen=True, slots=True)
class Cover:
    """The written nodes that one executed node was made from, in their order, and the one that stands for it.

    ``nodes`` is empty where the node only hands on what others computed: ``chief`` then is the written node whose
    numbers those are. ``chief`` is None where nothing is known. ``others`` counts the executed nodes that were made
    together with it, in a way that cannot be told apart node by node.
    """

    nodes: tuple[Operation, ...]
    chief: Operation | None
    others: int = 0


def covers(main: Graph, pairing: Pairing) -> dict[Operation, Cover]:
    """For each executed node of a model that has been paired; no written node is in two clusters of executed ones."""
    found: dict[Operation, Cover] = {}
    for executed in graph_and_bodies(main):
        written = pairing.graphs.get(executed)
        if written is not None:
            found.update(_Covering(executed, written, pairing).found())
    _adopt(main, None, found)
    return found


def _adopt(executed: Graph, holder: Operation | None, found: dict[Operation, Cover]) -> None:
    """Nodes that ONNX Runtime put in, or opened an operator up into, belong to what they were put in for."""
    around = found[holder].chief if holder is not None and holder in found else None
    opened = around is not None and holder is not None and around.op != holder.op
    for op in reversed(executed.operations):
        cover = found.get(op, Cover((), None))
        if cover.chief is None:
            own = {names.strip_numbers(value.name) for value in op.writes()}
            chief = _read_by(op, found)
            if chief is not None and not (
                op.op in ONNX.having("form") or any(name.startswith(names.in_function(chief.op, "")) for name in own)
            ):
                chief = None
            cover = Cover(cover.nodes, chief or (around if opened else None), cover.others)
        found[op] = cover
    for op in executed.operations:
        for body in op.bodies.values():
            _adopt(body, op, found)


def _read_by(op: Operation, found: dict[Operation, Cover]) -> Operation | None:
    readers = (reader for value in op.writes() for reader in value.readers)
    return next((found[r].chief for r in readers if r in found and found[r].chief is not None), None)


class _Covering:
    def __init__(self, executed: Graph, written: Graph, pairing: Pairing) -> None:
        self.executed = executed
        self.written = written
        self.pairing = pairing
        values = (*executed.inputs, *(value for op in executed.operations for value in op.writes()))
        self.known = {known for v in values if not v.constant and (known := pairing.written_value(v)) is not None}
        self.owner: dict[Operation, int] = {}

    def found(self) -> dict[Operation, Cover]:
        """The covers of all nodes of this graph."""
        clusters = _clusters(self.executed, self.pairing)
        for number, cluster in enumerate(clusters):
            for op in cluster:
                for value in op.writes():
                    start = self.pairing.values.get(value)
                    if start is not None:
                        self._reach(start, number)
        self._left_over()
        nodes: list[list[Operation]] = [[] for _ in clusters]
        for op in self.written.operations:
            if op in self.owner:
                nodes[self.owner[op]].append(op)
        found: dict[Operation, Cover] = {}
        for cluster, written in zip(clusters, nodes, strict=True):
            shared = _shared(cluster, written)
            for op in cluster:
                others = sum(other is not op and not set(shared[other]).isdisjoint(shared[op]) for other in cluster)
                found[op] = Cover(tuple(shared[op]), self._chief(op, shared[op], found), others)
        return found

    def _reach(self, start: Value, number: int) -> None:
        """Whatever leads to a value, back to those that are executed themselves."""
        waiting = [start]
        own = self.pairing.representative(start)
        while waiting:
            maker = waiting.pop().maker
            if maker is None or maker in self.owner or maker.graph is not self.written:
                continue
            self.owner[maker] = number
            for read in maker.reads():
                holds = self.pairing.representative(read)
                if not read.constant and (holds is own or holds not in self.known):
                    waiting.append(read)

    def _left_over(self) -> None:
        """Copies, and calculations done twice, belong to what computes the same; what is left, to what reads it."""
        alive = live_operations(self.written)
        ordered = [op for op in self.written.operations if op in alive]
        # of several that compute the same, any may be the one that is left
        owners = {
            self.pairing.representative(value): self.owner[op]
            for op in reversed(ordered)
            if op in self.owner
            for value in op.writes()
        }
        for op in ordered:
            same = [self.pairing.representative(value) for value in op.writes()]
            makers = [value.maker for value in same]
            found = next((owners[value] for value in same if value in owners), None)
            found = next((self.owner[maker] for maker in makers if maker in self.owner), found)
            if found is not None and op not in self.owner:
                for value in op.writes():
                    self._reach(value, found)
        for op in reversed(ordered):
            readers = (reader for value in op.writes() for reader in value.readers)
            found = next((self.owner[reader] for reader in readers if reader in self.owner), None)
            if found is not None:
                self.owner.setdefault(op, found)

    def _chief(self, op: Operation, nodes: Sequence[Operation], before: dict[Operation, Cover]) -> Operation | None:
        """The written node whose type is the executed one's; else the one that wrote the same value."""
        same = next((found.maker for v in op.writes() if (found := self.pairing.values.get(v)) is not None), None)
        computed = [node for node in nodes if not all(value.shape_only for value in node.writes())] or list(nodes)
        for kind in names.source_op_types(op.op):
            alike = [node for node in computed if node.op == kind]
            if alike:
                return same if same in alike else alike[-1]
        if same is not None:
            return same
        if computed:
            return computed[-1]
        return self._moved(op, before) if op.op in ONNX.having("form") else None

    def _moved(self, op: Operation, before: dict[Operation, Cover]) -> Operation | None:
        source = op.inputs[0] if op.inputs else None
        if source is None:
            return None
        if source.maker is not None and source.maker in before:
            return before[source.maker].chief
        found = self.pairing.values.get(source)
        return found.maker if found is not None else None


def _clusters(executed: Graph, pairing: Pairing) -> list[list[Operation]]:
    """The nodes of a graph, joined where one reads what another wrote and what that is is not known."""
    parent = {op: op for op in executed.operations}

    def root(op: Operation) -> Operation:
        while parent[op] is not op:
            parent[op] = parent[parent[op]]
            op = parent[op]
        return op

    for op in executed.operations:
        for value in op.writes():
            if value in pairing.values:
                continue
            for reader in value.readers:
                if reader in parent:
                    parent[root(reader)] = root(op)
    clusters: dict[Operation, list[Operation]] = {}
    for op in executed.operations:
        clusters.setdefault(root(op), []).append(op)
    return list(clusters.values())


def _shared(cluster: Sequence[Operation], nodes: Sequence[Operation]) -> dict[Operation, list[Operation]]:
    """The written nodes of a cluster among its executed ones: those that one of them alone can be, to it."""
    if len(cluster) == 1:
        return {cluster[0]: list(nodes)}
    shared: dict[Operation, list[Operation]] = {op: [] for op in cluster}
    taken: set[Operation] = set()
    for op in cluster:
        named = set(names.of_node(op.name)) if op.name else set[str]()
        own = [node for node in nodes if node.name and names.strip_numbers(node.name) in named and node not in taken]
        if len(own) == 1:
            shared[op].append(own[0])
            taken.add(own[0])
    for op in cluster:
        alike = [node for node in nodes if node.op == op.op and node not in taken]
        rivals = [other for other in cluster if other.op == op.op and not shared[other]]
        if not shared[op] and len(alike) == len(rivals):
            shared[op].append(alike[0])
            taken.add(alike[0])
    left = [node for node in nodes if node not in taken]
    takers = (
        [op for op in cluster if op.op not in ONNX.having("form")]
        or [op for op in cluster if not shared[op]]
        or list(cluster)
    )
    for op in takers:
        shared[op] = _in_order([*shared[op], *left], nodes)
    return shared


def _in_order(some: Iterable[Operation], nodes: Sequence[Operation]) -> list[Operation]:
    chosen = set(some)
    return [node for node in nodes if node in chosen]
