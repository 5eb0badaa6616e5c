"""Control flow: the bodies of If, Loop and Scan run beside their node, and the scopes of their values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from whynan.capture.onnx.arrays import give_tensor, kind_of, read_ort_value, same_bits, type_of
from whynan.capture.onnx.execution import BATCH, is_batched
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import TypeProto

    from whynan.capture.onnx.execution import Node, Observer, Tensor, Value
    from whynan.capture.onnx.graph.executed import Executable
    from whynan.capture.onnx.segments import Plan


# -- The values of a run that are alive: of the main graph, and within it of the iteration of a body -------------------


class Scope:
    """The values of one graph by name, as the engine has them and as they are looked at; and those around it."""

    def __init__(self, graph: Executable, outer: Scope | None = None) -> None:
        self.graph = graph
        self.outer = outer
        self._held: dict[str, Any] = {}
        self._seen: dict[str, Value] = {}
        self._kinds: dict[str, TypeProto] = {}
        self.unreadable: dict[str, str] = {}
        """Why a value could not be looked at."""

    def hold(self, name: str, value: Any, kind: TypeProto | None = None) -> None:
        """Keep a value of the engine's."""
        self._held[name] = value
        if kind is not None:
            self._kinds[name] = kind

    def show(self, name: str, value: Value) -> None:
        """Have a value be looked at in another form than the engine has it."""
        self._seen[name] = value

    def drop(self, name: str) -> None:
        """Let a value go."""
        self._held.pop(name, None)
        self._seen.pop(name, None)

    def engine_value(self, name: str) -> Any:
        """The engine's value of a name, here or around; an initialiser is made one."""
        if name in self._held:
            return self._held[name]
        if self.graph.is_constant(name):
            # not kept: as long as it is not, it is known to be an initialiser
            return give_tensor(self.graph.array(name))
        if self.outer is None:
            raise KeyError(name)
        return self.outer.engine_value(name)

    def has(self, name: str) -> bool:
        """Whether a value of this name is alive, here or around."""
        return name in self._held or (self.outer is not None and self.outer.has(name))

    def kind(self, name: str) -> TypeProto:
        """The type of a value, without a shape."""
        if name in self._kinds:
            return self._kinds[name]
        if name not in self._held:
            if self.graph.is_constant(name):
                return kind_of(self.graph.array(name))
            if self.outer is not None:
                return self.outer.kind(name)
        return type_of(str(self._held[name].data_type()))

    def observed_value(self, name: str) -> Value:
        """A value as it is looked at: a view, for as long as the value is held."""
        if not name:
            return None
        if name in self._seen:
            return self._seen[name]
        if name in self._held:
            value = self._seen[name] = self._read(name)
            return value
        if self.graph.is_constant(name):
            return self.graph.array(name)
        return None if self.outer is None else self.outer.observed_value(name)

    def _read(self, name: str) -> Value:
        try:
            return read_ort_value(self._held[name])
        except RuntimeError as error:
            self.unreadable[name] = str(error)
            return None


@dataclass(slots=True)
class Run:
    """One run of a graph: its values, and who is told of it.

    ``shown`` are the nodes as an observer sees them, ``told`` the initialisers that it has been told of, and ``path``
    is the way to a body.
    """

    scope: Scope
    observer: Observer
    shown: Sequence[Node]
    told: set[str]
    path: tuple[tuple[str, str, int], ...] = ()


# -- The bodies of If, Loop and Scan, run beside the node that holds them ----------------------------------------------
#
# The node itself runs in its graph, and what it wrote goes on; its bodies are run once more, iteration by iteration,
# with every value looked at. What they come to must be what the node wrote, bit for bit; where it is not, that is
# said.


Fed: TypeAlias = "tuple[Any, TypeProto | None, str]"
"""An input of a body: the engine's value, its type where that cannot be asked for, and the value around that it is."""


class Walking(Protocol):
    """The walk over a graph, which runs the nodes of a body too."""

    notes: dict[Note, None]
    here: Scope | None

    def run(self, run: Run, plan: Plan) -> None: ...


class Bodies:
    """Runs the bodies of nodes, with the sessions of a walk."""

    def __init__(self, walk: Walking) -> None:
        self._walk = walk

    def interpret(self, node: Node, scope: Scope, observer: Observer, told: set[str]) -> None:
        """Tell of the bodies of a node that has run in this scope."""
        if node.op == "If":
            same = self._branch(node, scope, observer, told)
        elif node.op == "Loop":
            same = self._loop(node, scope, observer, told)
        elif is_batched(node):
            same = self._batch(node, scope, observer, told)
        elif node.op == "Scan":
            same = self._scan(node, scope, observer, told)
        else:
            self._walk.notes[Note.create("body_not_entered", node_name=called(node), op=node.op)] = None
            return
        if not same:
            self._walk.notes[Note.create("body_differs", node_name=called(node), op=node.op)] = None

    def _branch(self, node: Node, scope: Scope, observer: Observer, told: set[str]) -> bool:
        attribute = "then_branch" if _truth(scope.observed_value(node.inputs[0])) else "else_branch"
        found = self._iteration(node, attribute, 0, scope, observer, told, [], [])
        outer = [scope.observed_value(name) for name in node.outputs]
        return all(same_bits(one, other) for one, other, n in zip(outer, found[1], node.outputs, strict=False) if n)

    def _loop(self, node: Node, scope: Scope, observer: Observer, told: set[str]) -> bool:
        body = scope.graph.body(node, "body")
        limit = scope.observed_value(node.inputs[0]) if node.inputs[0] else None
        most = None if limit is None else int(np.asarray(limit).reshape(-1)[0])
        condition = node.inputs[1] if len(node.inputs) > 1 else ""
        going = True if not condition else _truth(scope.observed_value(condition))
        names = [condition, *node.inputs[2:]]
        states = [scope.engine_value(name) if name else None for name in names]
        kinds = [scope.kind(name) if name else None for name in names]
        carried = len(node.inputs) - 2
        collected = node.outputs[carried:]
        formal = list(body.inputs)
        same, seen = True, [scope.observed_value(name) for name in names[1:]]
        iteration = 0
        while going and (most is None or iteration < most):
            if states[0] is None:
                states[0] = give_tensor(_shaped(np.array(True), body.inputs[formal[1]]))
            number = give_tensor(_shaped(np.array(iteration, np.int64), body.inputs[formal[0]]))
            fed = [(number, None, ""), *zip(states, kinds, names, strict=True)]
            left, seen_now = self._iteration(node, "body", iteration, scope, observer, told, fed, formal)
            states, names = list(left[: carried + 1]), list(body.outputs[: carried + 1])
            going, seen = _truth(seen_now[0]), seen_now[1 : carried + 1]
            for name, value in zip(collected, seen_now[carried + 1 :], strict=False):
                same = same and (not name or _slice_is(scope.observed_value(name), iteration, 0, value))
            iteration += 1
        outer = [scope.observed_value(name) for name in node.outputs[:carried]]
        ends = all(same_bits(one, other) for one, other, n in zip(outer, seen, node.outputs, strict=False) if n)
        return same and ends

    def _scan(self, node: Node, scope: Scope, observer: Observer, told: set[str]) -> bool:
        body = scope.graph.body(node, "body")
        scanned = _scanned(node)
        carried = len(node.inputs) - scanned
        axes, backwards = _ints(node, "scan_input_axes", scanned), _ints(node, "scan_input_directions", scanned)
        out_axes = _ints(node, "scan_output_axes", len(node.outputs) - carried)
        out_backwards = _ints(node, "scan_output_directions", len(node.outputs) - carried)
        states = [scope.engine_value(name) for name in node.inputs[:carried]]
        names = list(node.inputs[:carried])
        whole = [np.asarray(scope.observed_value(name)) for name in node.inputs[carried:]]
        length = whole[0].shape[axes[0]] if whole else 0
        formal = list(body.inputs)
        same, seen = True, [scope.observed_value(name) for name in names]
        for iteration in range(length):
            slices = [
                give_tensor(np.array(array.take(length - 1 - iteration if back else iteration, axis)))
                for array, axis, back in zip(whole, axes, backwards, strict=True)
            ]
            fed: list[Fed] = [(state, None, name) for state, name in zip(states, names, strict=True)]
            fed += [(part, None, name) for part, name in zip(slices, node.inputs[carried:], strict=True)]
            left, seen_now = self._iteration(node, "body", iteration, scope, observer, told, fed, formal)
            states, names, seen = list(left[:carried]), list(body.outputs[:carried]), seen_now[:carried]
            for i, (name, value) in enumerate(zip(node.outputs[carried:], seen_now[carried:], strict=False)):
                place = length - 1 - iteration if out_backwards[i] else iteration
                same = same and (not name or _slice_is(scope.observed_value(name), place, out_axes[i], value))
        outer = [scope.observed_value(name) for name in node.outputs[:carried]]
        ends = all(same_bits(one, other) for one, other, n in zip(outer, seen, node.outputs, strict=False) if n)
        return same and ends

    def _batch(self, node: Node, scope: Scope, observer: Observer, told: set[str]) -> bool:
        """Each element of a batch as a Scan of its own, of as many iterations as it is long."""
        lengths = scope.observed_value(node.inputs[0])
        names = node.inputs[1:]
        alone = _unbatched(node)
        carried = len(names) - _scanned(node)
        whole = [np.asarray(scope.observed_value(name)) for name in names]
        same = True
        for number in range(whole[carried].shape[0]):
            length = whole[carried].shape[1] if lengths is None else int(np.asarray(lengths)[number])
            one = replace(alone, body=(*node.body, (called(node), BATCH, number)))
            inner = Scope(scope.graph, scope)
            for i, (name, array) in enumerate(zip(names, whole, strict=True)):
                inner.hold(name, give_tensor(np.array(_of_batch(array, number, None if i < carried else length))))
            for i, name in enumerate(node.outputs):
                if name:
                    array = np.asarray(scope.observed_value(name))
                    inner.hold(name, give_tensor(np.array(_of_batch(array, number, None if i < carried else length))))
            seen = [inner.observed_value(name) for name in names]
            observer.on_body_enter(list(names), seen, list(names))
            same = self._scan(one, inner, observer, told) and same
            self._walk.here = inner
            left = [inner.observed_value(name) for name in node.outputs]
            observer.on_node(one, seen, left)
            observer.on_body_leave(list(node.outputs), left)
        return same

    def _iteration(
        self,
        node: Node,
        attribute: str,
        iteration: int,
        scope: Scope,
        observer: Observer,
        told: set[str],
        fed: Sequence[Fed],
        formal: Sequence[str],
    ) -> tuple[list[Any], list[Value]]:
        """One iteration of a body: its outputs, as the engine has them and as they are looked at."""
        body: Executable = scope.graph.body(node, attribute)
        inner = Scope(body, scope)
        for name, (value, kind, _) in zip(formal, fed, strict=True):
            inner.hold(name, value, kind)
        observer.on_body_enter(
            list(formal), [inner.observed_value(name) for name in formal], [name for _, _, name in fed]
        )
        path = (*node.body, (called(node), attribute, iteration))
        self._walk.run(Run(inner, observer, body.nodes, told, path), (len(body.nodes),))
        seen = [inner.observed_value(name) for name in body.outputs]
        observer.on_body_leave(list(body.outputs), seen)
        return [inner.engine_value(name) for name in body.outputs], seen


def called(node: Node) -> str:
    """The name of a node that holds a body; its type and place where it has none."""
    return node.name or f"{node.op}_{node.index}"


def carried_names(node: Node, body: Executable, iteration: int) -> list[str]:
    """For each input of a body the value that it is: of the graph around, or an output of the iteration before."""
    if node.op == "Loop":
        first = [*node.inputs[1:2], *node.inputs[2:]]
        return ["", *(first if iteration == 0 else body.outputs[: len(first)])]
    if node.op == "Scan":
        scanned = _scanned(node)
        states = len(node.inputs) - scanned
        before = list(node.inputs[:states] if iteration == 0 else body.outputs[:states])
        return [*before, *node.inputs[states:]]
    # what other operators make of their bodies is theirs
    return [""] * len(body.inputs)


def _scanned(node: Node) -> int:
    return next(int(a.i) for a in node.proto.attribute if a.name == "num_scan_inputs")


def _unbatched(node: Node) -> Node:
    """The Scan of a batch as that of one of its elements, which newer opsets know."""
    proto = type(node.proto)()
    proto.CopyFrom(node.proto)
    del proto.input[0]
    for attribute in proto.attribute:
        if attribute.name == "directions":
            attribute.name = "scan_input_directions"
    return replace(node, inputs=node.inputs[1:], proto=proto, opset=None)


def _of_batch(array: Tensor, number: int, length: int | None) -> Tensor:
    """An element of a batch; of a sequence as much as it is long."""
    return array[number] if length is None else array[number, :length]


def _truth(value: Value) -> bool:
    return bool(np.asarray(value).reshape(-1)[0])


def _shaped(array: Tensor, declared: TypeProto) -> Tensor:
    """A single number as a body declares it: without dimensions, or with one."""
    kind = declared.tensor_type
    return array.reshape((1,) * len(kind.shape.dim)) if kind.HasField("shape") else array


def _ints(node: Node, name: str, count: int) -> list[int]:
    found: list[int] | None = next((list(a.ints) for a in node.proto.attribute if a.name == name), None)
    return found or [0] * count


def _slice_is(whole: Value, place: int, axis: int, part: Value) -> bool:
    array = np.asarray(whole)
    return place < array.shape[axis] and same_bits(np.array(array.take(place, axis)), part)
