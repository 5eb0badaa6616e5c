"""The segment runner: runs a graph segment by segment, and tells an observer of each node and value."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.onnx.arrays import detached, engine_message, run_session, type_of
from whynan.capture.onnx.control_flow import Bodies
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.graph.executed import Executable, TappedModel, bodies_of, tap_nodes
from whynan.capture.onnx.segments import trim_heap
from whynan.capture.onnx.sessions import EngineSettings, open_exact_session
from whynan.capture.onnx.statistics import counters
from whynan.floats import format_of
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import onnx
    from onnx import TypeProto

    from whynan.capture.onnx.control_flow import Run, Scope
    from whynan.capture.onnx.execution import Node, Value
    from whynan.capture.onnx.segments import Bound, Memory, Plan
    from whynan.capture.onnx.sessions import Profile


# -- Running a graph segment by segment, and telling an observer of each node and value --------------------------------


_EMULATED: Final = "InsertedPrecisionFreeCast_"
"""What ONNX Runtime calls a value that it keeps in float32 where the model has it in float16."""
_HALF: Final = format_of("float16").max
_INLINE: Final = 1 << 24
"""Bytes of a model that is handed over from memory; a larger one, or one with weights in files, goes by a file."""


@dataclass(slots=True)
class Segment:
    """Some nodes of a graph that run in one session; ``kinds`` are the types of outputs that may hold nothing."""

    begin: int
    end: int
    tapped: TappedModel
    session: Any
    kinds: dict[str, TypeProto] = field(default_factory=lambda: {})
    later: frozenset[str] = frozenset()
    """What it writes and is still read when it is over."""
    bound: Bound | None = None


class Walk:
    """The sessions of one executed model, and how they run.

    ``lean``: sessions are dropped after use.
    """

    def __init__(
        self,
        settings: EngineSettings,
        folder: Path,
        *,
        profile: Profile,
        memory: Memory,
        lean: bool,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self._shown: dict[int, tuple[Node, ...]] = {}
        self.lean = lean
        self.notes: dict[Note, None] = {}
        """What is to be said of the run."""
        self.nodes = 0
        """Nodes of the main graph that have run."""
        self.emulated = 0
        """Values of float16 that the engine kept in float32."""
        self.overflows: list[tuple[str, float]] = []
        """Those of them that float16 could not hold, and their greatest magnitudes."""
        self.here: Scope | None = None
        """The innermost values, while a node is told of."""
        self.owners: dict[int, Executable] = {}
        """The graph of each node that has been told of, by the identity of its proto."""
        self._kernels, self._inner = profile.kernels, profile.inner
        self._memory = memory
        self._segments: dict[tuple[int, int, int, tuple[tuple[str, bytes], ...]], Segment] = {}
        self._kept: list[Executable] = []
        self._made = 0
        self._bodies = Bodies(self)

    def begin(self) -> None:
        """A new run begins: what was counted and said of the one before is not of this one."""
        self.nodes = self.emulated = 0
        self.overflows = []
        self.notes = {}

    def shown(self, graph: Executable) -> tuple[Node, ...]:
        """The nodes of the main graph as an observer sees them."""
        if id(graph) not in self._shown:
            self._shown[id(graph)] = tuple(
                dataclasses.replace(n, provider=self._kernels[n.index].provider) if n.index in self._kernels else n
                for n in graph.nodes
            )
            self._own(graph)
        return self._shown[id(graph)]

    def run(self, run: Run, plan: Plan) -> None:
        """Run the nodes of a graph; its values stay as long as they are read. Raises ``RunError``."""
        for begin, end in pairwise((0, *plan)):
            if end > begin:
                self._segment(run, begin, end)
        self._constants(run, run.scope.graph.constants_left)

    def _segment(self, run: Run, begin: int, end: int) -> None:
        try:
            written = self._executed(run.scope, begin, end)
        except RunError as error:
            if end - begin == 1:
                raise
            self._one_at_a_time(run, begin, end, error)
            return
        run.observer.on_values([run.scope.observed_value(name) for name in written])
        for index in range(begin, end):
            self._tell(run, run.shown[index])
        if self.lean and not run.path:
            self._drop()

    def _one_at_a_time(self, run: Run, begin: int, end: int, error: RunError) -> None:
        """After a failure, so that what ran before the node that failed is told of."""
        for one in range(begin, end):
            self._segment(run, one, one + 1)
        self.notes[Note.create("one_at_a_time", node_index=begin, why=error.what)] = None

    def _executed(self, scope: Scope, begin: int, end: int) -> Sequence[str]:
        """Run some nodes and hold what they wrote: the values that can be looked at."""
        segment = self._opened(scope, begin, end)
        try:
            feeds = {name: scope.engine_value(name) for name in segment.tapped.feeds}
            found = _launched(segment, feeds) if segment.tapped.values else []
        except Exception as error:
            raise RunError(engine_message(error), self.nodes) from None
        by_name: dict[str, Any] = dict(zip(segment.tapped.values, found, strict=True))
        for name in segment.tapped.values:
            # what lasts longer than the segment must not keep the rest of it
            lasts = name in segment.later
            scope.hold(name, detached(by_name[name]) if lasts else by_name[name], segment.kinds.get(name))
        for name, view in segment.bound.views().items() if segment.bound is not None else ():
            scope.show(name, view)
        return segment.tapped.values

    def _constants(self, run: Run, found: Iterable[tuple[str, Executable]]) -> None:
        """Tell of initialisers, each with the graph that has it, that are read or that leave."""
        for name, owner in found:
            if name not in run.told and not run.scope.has(name):
                run.told.add(name)
                run.observer.on_input(name, owner.array(name), "initializer")

    def _tell(self, run: Run, node: Node) -> None:
        scope, observer, told, path = run.scope, run.observer, run.told, run.path
        graph = scope.graph
        self._constants(run, graph.constant_reads[node.index])
        if path:
            kernel = self._inner.get(node.name)
            node = dataclasses.replace(node, body=path, provider=None if kernel is None else kernel.provider)
        if node.index in graph.holders:
            self._bodies.interpret(node, scope, observer, told)
        self.here = scope
        inputs = [scope.observed_value(name) for name in node.inputs]
        outputs = [scope.observed_value(name) for name in node.outputs]
        observer.on_node(node, inputs, outputs)
        self._emulated(node, outputs)
        if not path:
            self.nodes += 1
        for name in graph.over[node.index]:
            scope.drop(name)

    def _emulated(self, node: Node, outputs: Sequence[Value]) -> None:
        """Note what only stays finite because the engine computes float16 in float32."""
        for name, value in zip(node.outputs, outputs, strict=True):
            if name.startswith(_EMULATED):
                found = counters(value)
                greatest = max(abs(found.finite_min or 0.0), abs(found.finite_max or 0.0))
                self.emulated += 1
                if found.dtype == "float32" and greatest > _HALF:
                    self.overflows.append((name.removeprefix(_EMULATED), greatest))

    def _opened(self, scope: Scope, begin: int, end: int) -> Segment:
        graph = scope.graph
        types = {
            name: scope.kind(name)
            for index in range(begin, end)
            for name in graph.reads[index]
            if not begin <= graph.producers.get(name, -1) < end and scope.has(name)
        }
        key = id(graph), begin, end, tuple((name, kind.SerializeToString()) for name, kind in types.items())
        segment = self._segments.get(key)
        if segment is None:
            model = tap_nodes(graph, begin, end, types)
            session = open_exact_session(self.settings, self.serialise_model(model.model))
            later = _later(graph, model.values, end)
            segment = Segment(begin, end, model, session, later=later)
            # a NodeArg keeps its whole session: only what it says is kept
            for output in session.get_outputs():
                if str(output.type).startswith("optional("):
                    segment.kinds[str(output.name)] = type_of(str(output.type))
            if graph is self._memory.graph and not self.lean and not segment.kinds:
                segment.bound = self._memory.bind_outputs(session, begin, end, model, later)
            self._segments[key] = segment
            self._own(graph)
        return segment

    def serialise_model(self, model: onnx.ModelProto) -> str | bytes:
        """A model as a session takes it: its bytes, or a file beside those of its weights."""
        if not _holds_external(model.graph) and model.ByteSize() < _INLINE:
            return model.SerializeToString()
        self._made += 1
        path = self.folder / f"segment-{self._made}.onnx"
        path.write_bytes(model.SerializeToString())
        return str(path)

    def _own(self, graph: Executable) -> None:
        if graph not in self._kept:
            self._kept.append(graph)
            self.owners.update((id(node.proto), graph) for node in graph.nodes)

    def _drop(self) -> None:
        """Let go of all sessions and of what they mapped; those of bodies stay while their node runs."""
        self._segments.clear()
        for graph in self._kept:
            graph.forget()
        trim_heap()


def _holds_external(graph: onnx.GraphProto) -> bool:
    return any(tensor.external_data for tensor in graph.initializer) or any(
        _holds_external(body) for node in graph.node for _, body in bodies_of(node)
    )


def _later(graph: Executable, values: Sequence[str], end: int) -> frozenset[str]:
    """The values that are read after a segment, or leave the graph."""
    return frozenset(name for name in values if graph.last_reads.get(name, -1) >= end or name in graph.outputs)


def _launched(segment: Segment, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of a segment, in the memory of those of other runs as long as they have the same shapes."""
    if segment.bound is not None:
        try:
            return segment.bound.run(feeds)
        except Exception:
            # of another shape than before, or wrong in itself, which the next run says
            segment.bound = None
    return run_session(segment.session, segment.tapped.values, feeds)


# -- What is to be said of how an engine ran a model -------------------------------------------------------------------


_MOST: Final = 8


def remarks(settings: EngineSettings, providers: Sequence[str], profile: Profile, walk: Walk) -> Iterator[Note]:
    """Providers that ran less than was asked of them, and float16 that is none."""
    asked = settings.provider_names
    for name in asked:
        if name not in providers:
            yield Note.create("provider_missing", provider=name, others=tuple(providers))
    placement = profile.placement
    elsewhere = {name: count for name, count in placement.items() if asked and name != asked[0]}
    if asked and asked[0] in providers and elsewhere:
        others, counts = tuple(elsewhere), tuple(elsewhere.values())
        yield Note.create(
            "provider_partial", provider=asked[0], others=others, counts=counts, nodes=sum(placement.values())
        )
    if walk.emulated:
        yield Note.create("float16_emulated", values=walk.emulated)
    for name, greatest in walk.overflows[:_MOST]:
        yield Note.create("float16_overflow", value_name=name, greatest=float(greatest))
    if len(walk.overflows) > _MOST:
        yield Note.create("float16_overflows", count=len(walk.overflows) - _MOST)
