"""Which value of the model as written each executed value is: by its name, by its node's, and by what it is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from whynan.capture.onnx.execution import NCHWC
from whynan.capture.onnx.graph import names
from whynan.capture.onnx.graph.model import Graph, Operation, Value, value_aliases
from whynan.capture.onnx.graph.names import inline_decided_ifs

_SHARED: Final = "ortshared_"
"""Before the name of a constant that several equal ones were made into."""
_FAR: Final = 200
"""Values that are looked through for those that have been paired."""


@dataclass(eq=False, slots=True, repr=False)
class Pairing:
    """The written values by executed value, and the written graphs by executed one.

    ``renamed`` are executed values that hold the numbers of another name: in blocks of channels, or in a wider type.
    ``twins`` are the written values that surely hold what another one holds.
    """

    values: dict[Value, Value] = field(default_factory=lambda: {})
    graphs: dict[Graph, Graph] = field(default_factory=lambda: {})
    renamed: set[Value] = field(default_factory=lambda: set())
    twins: dict[Value, Value] = field(default_factory=lambda: {})

    def representative(self, value: Value) -> Value:
        """The first of the written values that hold the same."""
        return self.twins.get(value, value)

    def written_value(self, value: Value | None) -> Value | None:
        """The representative of what an executed value is; None where that is not known."""
        found = self.values.get(value) if value is not None else None
        return None if found is None else self.representative(found)


def pair_graphs(executed: Graph, written: Graph) -> Pairing:
    """Pair an executed model with the one it was made from; branches that were decided beforehand are opened up."""
    pairing = Pairing()
    _pair(executed, written, pairing)
    return pairing


def _pair(executed: Graph, written: Graph, pairing: Pairing, holder: Operation | None = None) -> None:
    inline_decided_ifs(written, executed)
    pairing.graphs[executed] = written
    pairing.twins.update(value_aliases(written))
    scope = _GraphPair(executed, written, pairing, holder)
    scope.pair_by_name()
    scope.forward()
    scope.backward()
    scope.forward()
    for op in executed.operations:
        if not op.bodies:
            continue
        like = next((found.maker for v in op.writes() if (found := pairing.values.get(v)) is not None), None)
        for attribute, body in op.bodies.items():
            if like is not None and attribute in like.bodies:
                _pair(body, like.bodies[attribute], pairing, like)


class _GraphPair:
    """One executed graph and the one as written."""

    def __init__(self, executed: Graph, written: Graph, pairing: Pairing, holder: Operation | None) -> None:
        self.executed = executed
        self.written = written
        self.pairing = pairing
        self.claimed: set[Value] = set()
        self.known: set[Value] = set()
        self.by_name: dict[str, dict[Value, None]] = defaultdict(dict)
        self.by_node: dict[str, list[Operation]] = defaultdict(list)
        self.members: dict[Value, list[Value]] = defaultdict(list)
        for value in (*written.values.values(), *written.hidden):
            if value.function is not None:
                self.by_name[names.in_function(value.function, value.name)][value] = None
            elif holder is not None:  # an operator whose definition was opened up around its body
                self.by_name[names.in_function(holder.op, value.name)][value] = None
            if value.function is None or written.outer is not None:
                self.by_name[names.strip_numbers(value.name)][value] = None
            self.members[pairing.representative(value)].append(value)
        for op in written.operations:
            if op.name:
                self.by_node[names.strip_numbers(op.name)].append(op)

    def pair_by_name(self) -> None:
        """What names and places tell for certain."""
        body = self.executed.outer is not None
        for place, value in enumerate(self.executed.inputs):
            found = self.written.values.get(value.name)
            if body and len(self.executed.inputs) == len(self.written.inputs):
                found = self.written.inputs[place]
            self.record_pair(value, found)
        for value in self.executed.values.values():
            if value.maker is not None or value.constant:
                self.record_pair(value, self.written.values.get(value.name))
        if body and len(self.executed.outputs) == len(self.written.outputs):
            for value, found in zip(self.executed.outputs, self.written.outputs, strict=True):
                if value is not None and found is not None and value.graph is self.executed:
                    self.record_pair(value, found)

    def record_pair(self, value: Value, found: Value | None) -> None:
        """Say what an executed value is, where nothing has been said of it."""
        if found is not None and value not in self.pairing.values:
            self.pairing.values[value] = found
            self.claimed.add(found)
            self.known.add(self.pairing.representative(found))

    def forward(self) -> None:
        """From the inputs on: each value that has no name of the file's own."""
        ways = (self._by_block, self._by_order, self._by_value_name, self._by_node_name, self._by_making)
        for op in self.executed.operations:
            for way in ways:
                if all(value in self.pairing.values for value in op.writes()):
                    break
                way(op)

    def backward(self) -> None:
        """From the outputs back: what a node reads that is like the one that wrote the same."""
        for op in reversed(self.executed.operations):
            written = self._equal(op)
            if written is None:
                continue
            for value, found in zip(op.inputs, written.inputs, strict=True):
                if value is None or found is None or value.constant or found.constant or found in self.claimed:
                    continue
                maker, like = value.maker, found.maker
                if maker is None or like is None or maker.graph is not self.executed or value in self.pairing.values:
                    continue
                if _alike(maker, like):
                    self._outputs(maker, like)

    def _equal(self, op: Operation) -> Operation | None:
        """The written node that an executed one is, where it is of the same type and writes the same."""
        found = [self.pairing.values.get(value) for value in op.writes()]
        maker = found[0].maker if found and found[0] is not None else None
        if maker is None or not _alike(op, maker) or any(v is None or v.maker is not maker for v in found):
            return None
        return maker

    def _by_block(self, op: Operation) -> None:
        name = names.blocked(op.name)
        if op.domain != NCHWC or name is None or not op.outputs or op.outputs[0] is None:
            return
        found = [value for value in self.by_name.get(name, {}) if not value.constant]
        if len(found) == 1:
            self.record_pair(op.outputs[0], self._through(found[0], op))
            self.pairing.renamed.add(op.outputs[0])

    def _by_order(self, op: Operation) -> None:
        """Blocks of channels are made of a value and made one again: the numbers stay."""
        source = self.pairing.values.get(op.inputs[0]) if op.inputs and op.inputs[0] is not None else None
        if op.domain == NCHWC and op.op in ("ReorderInput", "ReorderOutput") and source is not None:
            for value in op.writes():
                self.record_pair(value, source)
                self.pairing.renamed.add(value)

    def _through(self, value: Value, op: Operation) -> Value:
        """The value after the sum and the activation that were drawn into a convolution, which is named before them."""
        added = op.inputs[3] if len(op.inputs) > 3 else None
        activation = next((a.s.decode(errors="replace") for a in op.proto.attribute if a.name == "activation"), None)
        drawn = [*(["Add"] if added is not None else []), *([activation] if activation else [])]
        for kind in drawn[_done(value, drawn) :]:
            others = {self.pairing.written_value(added)} - {None} if kind == "Add" else set[Value | None]()
            readers = [r for r in self._readers(value) if r.op == kind or (kind == "Add" and r.op == "Sum")]
            if others:
                readers = [r for r in readers if others & {self.pairing.representative(v) for v in r.reads()}]
            if len(readers) != 1 or readers[0].outputs[0] is None:
                return value
            value = readers[0].outputs[0]
        return value

    def _by_value_name(self, op: Operation) -> None:
        for value in op.writes():
            if value in self.pairing.values:
                continue
            for name in names.value_name_candidates(value.name):
                named = self.by_name.get(name, {})
                found = self._chosen(named, op)
                if found is None and len(named) == 1 and names.is_cast(value.name):
                    (found,) = named  # one that no node writes
                if found is not None:
                    self.record_pair(value, found)
                    if names.is_cast(value.name):
                        self.pairing.renamed.add(value)
                    break

    def _chosen(self, found: Mapping[Value, None], op: Operation) -> Value | None:
        """One of several values of one name: that which is made of what the node reads."""
        if len(found) <= 1:
            return next((value for value in found if value.maker is not None), None)
        made = self._made_alike(op, lambda like: any(v in found and v not in self.claimed for v in like.writes()))
        if made is not None:
            return next(value for value in made.writes() if value in found and value not in self.claimed)
        free = [value for value in found if value not in self.claimed and value.maker is not None]
        reads = {self.pairing.representative(found) for found in _border(op, self.pairing.values.get)}
        if not reads:
            return None

        def paired(value: Value) -> Value | None:
            holds = self.pairing.representative(value)
            return holds if holds in self.known or value.maker is None else None

        return next((v for v in free if v.maker is not None and _border(v.maker, paired) == reads), None)

    def _by_node_name(self, op: Operation) -> None:
        if not op.name:
            return
        for name in names.of_node(op.name):
            found = [like for like in self.by_node.get(name, ()) if like.op == op.op and _arity(like) == _arity(op)]
            if len(found) == 1 and not any(value in self.claimed for value in found[0].writes()):
                self._outputs(op, found[0])
                return

    def _by_making(self, op: Operation) -> None:
        found = self._made_alike(op, lambda _: True)
        if found is not None:
            self._outputs(op, found)

    def _outputs(self, op: Operation, like: Operation) -> None:
        for value, found in zip(op.outputs, like.outputs, strict=False):
            if value is not None and found is not None:
                self.record_pair(value, found)
                if op.domain == NCHWC or names.is_reordered(value.name):
                    self.pairing.renamed.add(value)

    def _made_alike(self, op: Operation, wanted: Callable[[Operation], bool]) -> Operation | None:
        """The written node of the same type and attributes that reads the same values; a free one before another."""
        reads = [self.pairing.written_value(value) for value in op.inputs if value is not None and not value.constant]
        if not reads or None in reads:
            return None
        rarest = min((read for read in reads if read is not None), key=self._count)
        found = [
            like
            for like in self._readers(rarest)
            if wanted(like) and _alike(op, like) and self._reads_the_same(op, like)
        ]
        free = [like for like in found if not any(value in self.claimed for value in like.writes())]
        return next(iter(free), None)

    def _members(self, value: Value) -> list[Value]:
        return self.members.get(self.pairing.representative(value), [value])

    def _count(self, value: Value) -> int:
        return sum(len(member.readers) for member in self._members(value))

    def _readers(self, value: Value) -> Iterable[Operation]:
        members = self._members(value)
        return dict.fromkeys(reader for member in members for reader in member.readers if reader.graph is self.written)

    def _reads_the_same(self, op: Operation, like: Operation) -> bool:
        for value, found in zip(op.inputs, like.inputs, strict=True):
            if value is None or found is None:
                if value is not found:
                    return False
            elif value.constant or found.constant:
                if not self._same_constant(value, found):
                    return False
            elif self.pairing.written_value(value) is not self.pairing.representative(found):
                return False
        return True

    def _same_constant(self, value: Value, found: Value) -> bool:
        if not (value.constant and found.constant):
            return False
        known = self.pairing.written_value(value)
        if known is not None:
            return known is self.pairing.representative(found)
        if value.maker is not None or value.name.startswith(_SHARED):
            return True
        plain = names.strip_numbers(
            found.name if found.function is None else names.in_function(found.function, found.name)
        )
        return plain in names.value_name_candidates(value.name)


def _border(op: Operation, paired: Callable[[Value], Value | None]) -> set[Value]:
    """The nearest values that have been paired from which a node computes; empty where there are too many."""
    border: set[Value] = set()
    seen: set[Value] = set()
    waiting = list(op.reads())
    while waiting and len(seen) < _FAR:
        read = waiting.pop()
        if read in seen or read.constant:
            continue
        seen.add(read)
        found = paired(read)
        if found is not None:
            border.add(found)
        elif read.maker is not None:
            waiting.extend(read.maker.reads())
    return border if not waiting else set()


def _alike(op: Operation, like: Operation) -> bool:
    if (op.op, op.domain, _arity(op)) != (like.op, like.domain, _arity(like)) or len(op.inputs) != len(like.inputs):
        return False
    return op.attributes == like.attributes and op.bodies.keys() == like.bodies.keys()


def _arity(op: Operation) -> tuple[bool, ...]:
    return tuple(value is not None for value in op.outputs)


def _done(value: Value, drawn: Sequence[str]) -> int:
    """How many of the nodes that were drawn in, a value already has behind it."""
    return next((count for count in range(len(drawn), 0, -1) if _ends_with(value, drawn[:count])), 0)


def _ends_with(value: Value, kinds: Sequence[str]) -> bool:
    makers = [value.maker]
    for kind in reversed(kinds):
        own = [m for m in makers if m is not None and (m.op == kind or (kind == "Add" and m.op == "Sum"))]
        if not own:
            return False
        makers = [read.maker for maker in own for read in maker.reads()]
    return True
