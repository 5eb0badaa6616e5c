"""The observer of a run: which node bore a bad number, what carried it on, and what it reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from whynan.capture.onnx.counts import bad_mask, is_bad, is_floating, nan_mask, tensors
from whynan.capture.onnx.execution import Counters
from whynan.capture.onnx.graph.executed import last_readers
from whynan.capture.onnx.graph.sites import Places
from whynan.capture.onnx.provenance.attribution import Question, attribute
from whynan.capture.onnx.provenance.births import Roots, split_births, writes_constants
from whynan.capture.onnx.provenance.body_scopes import Scopes, ValueWriter, is_joined, stack_marks
from whynan.capture.onnx.provenance.causes import Causes
from whynan.capture.onnx.provenance.damage import add_shadow, taint_outputs
from whynan.capture.onnx.provenance.interventions import Experiments
from whynan.capture.onnx.provenance.labels import Labels, Mark, compact, flat, part_of, release_mark, sequence_marks
from whynan.capture.onnx.provenance.sinks import GraphSinks
from whynan.capture.onnx.recorder import range_of
from whynan.capture.provenance.arrays import Carrier
from whynan.capture.provenance.births import add_step
from whynan.ops.table import ONNX
from whynan.records import Coverage, Note
from whynan.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.capture.onnx.counts import Key
    from whynan.capture.onnx.execution import Node, SingleNodeRunner, Tensor, Value
    from whynan.capture.onnx.graph.sites import NodePlaces
    from whynan.capture.onnx.provenance.labels import Marks, Plane
    from whynan.capture.onnx.recorder import Recorder
    from whynan.capture.onnx.single_node import NodeKeeper


class BirthObserver:
    """Finds births, fates, chains and operands in what an engine tells, and writes them as it goes.

    Args:
        recorder: where ranges and facts go.
        sites: says where in the user's source a node comes from.
        ranges: record the range of every value; else only what is bad is looked at closely.
        count: counts the elements of a value; if it has ``ahead``, that is given all that are written at a time.
    """

    def __init__(
        self,
        recorder: Recorder,
        sites: NodePlaces,
        *,
        ranges: bool,
        count: Callable[[Value], Counters] | None = None,
    ) -> None:
        self.recorder = recorder
        self.places = Places(sites)
        self.labels = Labels()
        self.scopes = Scopes()
        self.notes: dict[Note, None] = {}
        self.before: Callable[[Sequence[Node]], object] = lambda _: None
        """Told of the nodes of the main graph before anything else is."""
        self.keeper: NodeKeeper | None = None
        self._ranges = ranges
        self._count = count or _counter()
        self._ahead: Callable[[Sequence[Value]], object] = getattr(self._count, "ahead", lambda _: None)
        self._events = 0
        self._sinks = GraphSinks(self.labels)
        self._unread: dict[str, frozenset[int]] = {}
        self._last: dict[str, int] = {}
        self._over: dict[int, list[str]] = {}
        self._told = 0
        self._reached = 0
        self._ready: tuple[Experiments, Roots] | None = None

    # -- what the engine tells -----------------------------------------------------------------------------------

    def on_begin(self, nodes: Sequence[Node], alone: SingleNodeRunner) -> None:
        """The run begins."""
        self.before(nodes)
        self._last = last_readers(nodes)
        for name, index in self._last.items():
            self._over.setdefault(index, []).append(name)
        experiments = Experiments(alone, self.notes)
        causes = Causes(self.scopes, self.places, experiments)
        self._ready = experiments, Roots(self.labels, self.places, causes)

    def on_input(self, name: str, value: Value, kind: Literal["input", "initializer"]) -> None:
        """A value that the graph begins with."""
        self.scopes.main.kinds[name] = kind
        self.scopes.remember(self.scopes.main, name, value)
        roots = self._parts[1]

        def of(part: Value) -> Marks:
            if isinstance(part, list):
                return [of(each) for each in part]
            tensor: Any = part
            bad = is_floating(part) and is_bad(tensor)
            return roots.enter(name, kind, np.asarray(tensor), None, self._events) if bad else None

        mark = of(value)
        if flat(mark):
            self.scopes.main.marks[name] = mark
            planes = [m.plane for m in flat(mark) if m.plane is not None]
            self._unread[name] = frozenset(label for plane in planes for label in self.labels.labels_in(plane))

    def on_values(self, values: Sequence[Value]) -> None:
        """Some nodes have run."""
        self._ahead(values)

    def on_node(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """A node has run."""
        ordinal = self._events
        self._events += 1
        bad = [
            bool(name) and self._counted(node, position, value, ordinal)
            for position, (name, value) in enumerate(zip(node.outputs, outputs, strict=False))
        ]
        for name in node.inputs if self._unread else ():
            if name in self._unread:
                self._parts[1].first_read(self._unread.pop(name), node, name, ordinal)
        for name in node.outputs:
            if name:
                self.scopes.here.writers[name] = ValueWriter(node, ordinal)
        marks = [self.scopes.mark_of(name) for name in node.inputs] if self.scopes.marked else []
        read = any(m is not None for m in marks)
        if any(bad) or read or (node.op in ONNX.having("control") and self.scopes.here.finished):
            known = len(self.labels.births)
            with np.errstate(all="ignore"):
                self._look(node, inputs, outputs, marks, bad, ordinal)
            if self.keeper is not None:
                self.keeper.keep(self.labels.births[known:], node, inputs, outputs)
        if node.op in ONNX.having("control"):
            self.scopes.finish_bodies(node)
        for name, value in zip(node.outputs, outputs, strict=False):
            if name:
                self.scopes.remember(self.scopes.here, name, value)
        self._release(node)
        if self.labels.births and not self._told:
            self._told = 1
            self.recorder.write_interim_facts(self.trace, now=True)
        else:
            self.recorder.write_interim_facts(self.trace)

    def on_body_enter(self, names: Sequence[str], values: Sequence[Value], carried: Sequence[str]) -> None:
        """An iteration of a body begins."""
        self.scopes.enter(names, values, carried)

    def on_body_leave(self, names: Sequence[str], values: Sequence[Value]) -> None:
        """An iteration of a body is over."""
        del values
        self.scopes.leave(names)

    def on_output(self, name: str, value: Value) -> None:
        """An output of the graph."""
        self._sinks.add_output(name, value, self.scopes.main.marks.get(name))

    # -- what is known -------------------------------------------------------------------------------------------

    def trace(self) -> Trace:
        """All that is known now; of a run that has come to no end, what nothing has read yet counts as observed."""
        reached = self._sinks
        sinks = reached.sinks if reached.left else reached.held(self._unfinished())
        notes = (*self.notes, *reached.given())
        if self.recorder.omitted:
            notes = (*notes, Note.create("value_ranges_left_out", values=self.recorder.omitted))
        return Trace(
            births=list(self.labels.births),
            sinks=list(sinks),
            coverage=Coverage(events=self._events, eager=self._events, typed_notes=notes),
            fatal_seen=reached.left,
            unexplained=list(reached.unexplained),
        )

    def _unfinished(self) -> list[Marks]:
        """The marks of values that some node is still to read, and of those that none reads: outputs."""
        held = self.scopes.main.marks
        return [m for name, m in held.items() if name not in self._last or self._last[name] >= self._reached]

    def end(self) -> Trace:
        """The run is over: write everything, and give it."""
        found = self.trace()
        self.recorder.finish(found)
        return found

    # -- counting ------------------------------------------------------------------------------------------------

    @property
    def _parts(self) -> tuple[Experiments, Roots]:
        assert self._ready is not None, "the run has not begun"
        return self._ready

    def _counted(self, node: Node, position: int, value: Value, ordinal: int) -> bool:
        """Count one value that a node wrote; whether it holds something bad."""
        if isinstance(value, list):
            bad = any(is_floating(tensor) and is_bad(tensor) for _, tensor in tensors(value, ()))
            if self._ranges:
                self.recorder.record_range(range_of(self.places, node, position, self._count(value), ordinal))
            return bad
        if not self._ranges and not is_floating(value):
            return False
        counted = self._count(value)
        if self._ranges:
            self.recorder.record_range(range_of(self.places, node, position, counted, ordinal))
        return counted.bad > 0

    # -- what is bad ---------------------------------------------------------------------------------------------

    def _look(
        self,
        node: Node,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        marks: list[Marks],
        bad: list[bool],
        ordinal: int,
    ) -> None:
        """Explain a node that wrote something bad, or read something bad."""
        experiments, roots = self._parts
        roots.nearby.record_bad_node(node, inputs, outputs, ordinal)
        known: Sequence[Marks] | None = None
        if node.op in ONNX.having("control") and self.scopes.here.finished:
            known = self._from_bodies(node, outputs)
        elif (sequences := sequence_marks(node, inputs, marks)) is not None:
            known = sequences
        carriers = self._carriers(node, inputs, marks, any(bad), ordinal)
        question = Question(node, inputs, outputs, marks, carriers, self.labels, experiments, self.places, ordinal)
        for position, value in enumerate(outputs):
            name = node.outputs[position] if position < len(node.outputs) else ""
            if not name:
                continue
            given = known[position] if known is not None and position < len(known) else None
            if bad[position]:
                mark = self._output_marks(question, position, value, given, known is not None)
                self.scopes.mark(name, mark)
            elif given is not None:
                self.scopes.mark(name, given)
        if any(flat(m) for m in marks) and not all(bad) and known is None:
            for position, mark in taint_outputs(question, bad).items():
                self.scopes.mark(node.outputs[position], mark)

    def _carriers(
        self, node: Node, inputs: Sequence[Value], marks: list[Marks], wrote_bad: bool, ordinal: int
    ) -> dict[Key, Carrier]:
        found: dict[Key, Carrier] = {}
        if not wrote_bad:
            return found
        for i, value in enumerate(inputs):
            for key, tensor in tensors(value, (i,)):
                if not is_floating(tensor):
                    continue
                mark = part_of(marks[i], key[1:]) if i < len(marks) else None
                plane = None if mark is None or mark.plane is None else mark.plane
                if plane is None or plane.shape != tensor.shape:
                    if not is_bad(tensor):
                        continue
                    # what no node that was looked at has written
                    entered = self._parts[1].enter(node.inputs[i], "", tensor, node, ordinal)
                    plane = entered.plane
                    assert plane is not None
                found[key] = self._split(tensor, plane)
        return found

    def _split(self, tensor: Tensor, plane: Plane) -> Carrier:
        labels = self.labels
        present = labels.present(plane)
        literal = [s for s in present if labels.is_literal(s)]
        carrier = Carrier(tensor)
        if not literal:
            carrier.explains = plane
        elif len(literal) == len(present):
            carrier.literal = plane
        else:
            carrier.literal = labels.select(plane, literal)
            carrier.explains = labels.select(plane, [s for s in present if s not in literal])
        if carrier.literal is not None:
            carrier.literal_nan = bool((nan_mask(tensor) & (carrier.literal != 0)).any())
        return carrier

    def _output_marks(self, question: Question, position: int, value: Value, given: Marks, from_within: bool) -> Marks:
        """The marks of an output that holds something bad; `given`: what bodies or sequences say of it already."""

        def of(part: Value, key: Key) -> Marks:
            if isinstance(part, list):
                return [of(each, (*key, i)) for i, each in enumerate(part)]
            if not is_floating(part):
                return None
            tensor: Any = np.asarray(part)
            if not is_bad(tensor):
                return part_of(given, key[1:]) if from_within else None
            return self._tensor(question, key, tensor, part_of(given, key[1:]))

        return of(value, (position,))

    def _tensor(self, question: Question, key: Key, tensor: Tensor, given: Mark | None) -> Mark:
        """Explain the bad elements of one tensor."""
        roots = self._parts[1]
        node, labels, ordinal = question.node, self.labels, question.ordinal
        bad = bad_mask(tensor)
        if given is not None and given.plane is not None and given.plane.shape == tensor.shape:
            carried = np.where(bad, given.plane, np.int32(0))
            if bool(((carried != 0) == bad).all()):
                return Mark(compact(carried), shadow=given.shadow)
        if writes_constants(node) and not question.carriers:
            if tensor.size > 1 and node.op == "Constant":
                return roots.enter(node.outputs[key[0]], "constant", tensor, node, ordinal)
            set_id = roots.constant(node, tensor, bad, ordinal, key[0])
            return Mark(compact(np.where(bad, np.int32(set_id), np.int32(0))))
        verdict = attribute(question, key, tensor)
        carried, born = verdict.carried, verdict.born
        births = any(c.explains is not None for c in question.carriers.values())
        before = labels.labels_in(carried) if births else frozenset[int]()
        if born.any():
            masks = roots.limit_masks(question, born, tensor)
            if masks is not None:
                literal = roots.constant(node, tensor, masks, ordinal, key[0])
                carried, born = np.where(masks, np.int32(literal), carried), born & ~masks
            for part, count in split_births(born, tensor):
                birth = roots.add_birth(question, key, tensor, part, count, verdict.causes_of(part, question), ordinal)
                carried = np.where(part, np.int32(birth), carried)
        if labels.literals and node.op not in ONNX.having("copying"):
            carried = roots.name_literals(carried, question, tensor, key[0])
        add_step(labels, before, lambda: question.chain_link(Note.create("carries_on", operator=node.op)))
        mark = Mark(compact(carried.astype(np.int32, copy=False)))
        add_shadow(question, key, mark)
        return mark

    def _from_bodies(self, node: Node, outputs: Sequence[Value]) -> list[Marks]:
        """The marks of what a node with bodies gives: of what the last iteration left, and of all that were joined."""
        iterations = self.scopes.here.finished
        last = iterations[-1]
        # a Loop's body gives first whether it goes on
        shift = 1 if node.op == "Loop" else 0
        found: list[Marks] = []
        for position, value in enumerate(outputs):
            place = position + shift
            name = last.names[place] if place < len(last.names) else ""
            mark = last.marks.get(name)
            if node.op == "If" or value is None or isinstance(value, list):
                found.append(mark)
                continue
            shape = np.asarray(value).shape
            whole = (
                stack_marks(iterations, place, shape) if is_joined(node, position, len(last.names) - shift) else None
            )
            found.append(whole if whole is not None else mark)
        return found

    # -- the end of values ---------------------------------------------------------------------------------------

    def _release(self, node: Node) -> None:
        """Of a value that nothing reads any more only the counts are kept."""
        if node.body:
            return
        self._reached = node.index + 1
        held = self.scopes.main.marks
        for name in (*self._over.pop(node.index, ()), *node.outputs) if held else ():
            mark = held.get(name)
            if mark is not None and self._last.get(name, -1) <= node.index:
                held[name] = release_mark(mark, self.labels)


def _counter() -> Callable[[Value], Counters]:
    from importlib import import_module

    return import_module("whynan.capture.onnx.counts").Counts()
