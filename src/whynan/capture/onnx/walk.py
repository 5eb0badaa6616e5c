"""Running a graph segment by segment, and telling an observer of each node and value."""

# pyright: strict

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.onnx.blocks import Blocks
from whynan.capture.onnx.bodies import Bodies
from whynan.capture.onnx.executable import Executable, bodies_of
from whynan.capture.onnx.execution import RunError, is_tensor
from whynan.capture.onnx.planning import give_back
from whynan.capture.onnx.scopes import Scope
from whynan.capture.onnx.sessions import EngineSettings, as_executed
from whynan.capture.onnx.statistics import counted_ahead, counters
from whynan.capture.onnx.taps import Tapped, tapped
from whynan.capture.onnx.values import detached, launch, said, type_of
from whynan.floats import format_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import onnx
    from onnx import TypeProto

    from whynan.capture.onnx.execution import Node, Observer, Tensor, Value
    from whynan.capture.onnx.written import Written

Plan = tuple[int, ...]
"""Where the segments of a graph end: the last of them is the number of its nodes."""
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
    tapped: Tapped
    session: Any
    kinds: dict[str, TypeProto] = field(default_factory=lambda: {})


class Walk:
    """The sessions of one executed model, and how they run.

    ``lean``: sessions are dropped after use and keep no memory; ``threads`` count the values of a segment ahead.
    """

    def __init__(
        self,
        settings: EngineSettings,
        folder: Path,
        *,
        channels: Mapping[str, int],
        written: Written,
        providers: Mapping[int, str],
        inner_providers: Mapping[str, str],
        lean: bool,
        threads: int,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self._channels = channels
        self._written = written
        self._blocks: dict[int, Blocks] = {}
        self.lean = lean
        self.notes: dict[str, None] = {}
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
        self._providers = providers
        self._inner_providers = inner_providers
        self._threads = threads
        self._segments: dict[tuple[int, int, int, bool, tuple[tuple[str, bytes], ...]], Segment] = {}
        self._kept: list[Executable] = []
        self._made = 0
        self._bodies = Bodies(self)

    def shown(self, graph: Executable) -> tuple[Node, ...]:
        """The nodes of the main graph as an observer sees them."""
        nodes = tuple(
            dataclasses.replace(node, provider=self._providers[node.index]) if node.index in self._providers else node
            for node in graph.nodes
        )
        self._own(graph)
        return nodes

    def blocks(self, graph: Executable) -> Blocks:
        """Which values of a graph are in blocks of channels."""
        if id(graph) not in self._blocks:
            blocks = self._blocks[id(graph)] = Blocks(graph, self._channels, self._written)
            self._own(graph)
            for name in sorted(blocks.unknown):
                self.notes[f"the value {name} is looked at in blocks of channels, as the engine keeps it"] = None
        return self._blocks[id(graph)]

    def run(
        self,
        scope: Scope,
        plan: Plan,
        observer: Observer,
        shown: Sequence[Node],
        told: set[str],
        path: tuple[tuple[str, str, int], ...] = (),
    ) -> None:
        """Run the nodes of a scope's graph; its values stay as long as they are read. Raises ``RunError``."""
        begin = 0
        for end in plan:
            if end > begin:
                self._segment(scope, begin, end, observer, shown, told, path)
            begin = end

    def _segment(
        self,
        scope: Scope,
        begin: int,
        end: int,
        observer: Observer,
        shown: Sequence[Node],
        told: set[str],
        path: tuple[tuple[str, str, int], ...],
    ) -> None:
        try:
            values = self._executed(scope, begin, end)
        except RunError as error:
            if end - begin > 1:
                self._one_at_a_time(scope, begin, end, observer, shown, told, path, error)
                return
            values = self._alone(scope, begin, error)
        with counted_ahead(values, self._threads):
            for index in range(begin, end):
                self._tell(scope, shown[index], observer, told, path)
        if self.lean and not path:
            self._drop()

    def _one_at_a_time(
        self,
        scope: Scope,
        begin: int,
        end: int,
        observer: Observer,
        shown: Sequence[Node],
        told: set[str],
        path: tuple[tuple[str, str, int], ...],
        error: RunError,
    ) -> None:
        """After a failure, so that what ran before the node that failed is told of."""
        for one in range(begin, end):
            self._segment(scope, one, one + 1, observer, shown, told, path)
        self.notes[f"the nodes from {begin} on could only be run one at a time: {error.what}"] = None

    def _alone(self, scope: Scope, index: int, error: RunError) -> list[Tensor]:
        """Run one node that failed once more, without turning what it writes out of blocks; raises ``RunError``."""
        node = scope.graph.nodes[index]
        blocks = self.blocks(scope.graph)
        if not any(name in blocks.channels for name in node.outputs):
            raise RunError(error.what, self.nodes) from None
        values = self._executed(scope, index, index + 1, turned=False)
        self.notes[f"the value {node.outputs[0]} is looked at in blocks of channels, as the engine keeps it"] = None
        return values

    def _executed(self, scope: Scope, begin: int, end: int, *, turned: bool = True) -> list[Tensor]:
        """Run some nodes and hold what they wrote; the arrays among it."""
        segment = self._opened(scope, begin, end, turned=turned)
        feeds = {name: scope.held(name) for name in segment.tapped.feeds}
        fetches = segment.tapped.fetches
        try:
            found = launch(segment.session, fetches, feeds) if fetches else []
        except Exception as error:
            raise RunError(said(error), self.nodes) from None
        by_name: dict[str, Any] = dict(zip(fetches, found, strict=True))
        for name in segment.tapped.values:
            value = detached(by_name[name]) if self.lean else by_name[name]
            scope.hold(name, value, segment.kinds.get(name))
        for name, plain in segment.tapped.plain.items():
            scope.show(name, by_name[plain].numpy())
        seen: list[Any] = [scope.seen(name) for name in {*segment.tapped.values, *segment.tapped.plain}]
        return [value for value in seen if is_tensor(value)]

    def _tell(
        self,
        scope: Scope,
        node: Node,
        observer: Observer,
        told: set[str],
        path: tuple[tuple[str, str, int], ...],
    ) -> None:
        graph = scope.graph
        for name in graph.reads[node.index]:
            found = graph.constant_of(name)
            if found is not None and name not in told and not scope.has(name):
                told.add(name)
                observer.enters(name, found[0].array(name), "initializer")
        aliases = self.blocks(graph).aliases
        for alias in (name for name in node.outputs if name in aliases):
            scope.show(alias, scope.seen(aliases[alias]))
        if path:
            provider = self._inner_providers.get(node.name)
            node = dataclasses.replace(node, body=path, provider=provider)
        if bodies_of(node.proto):
            self._bodies.interpret(node, scope, observer, told)
        self.here = scope
        inputs = [scope.seen(name) for name in node.inputs]
        outputs = [scope.seen(name) for name in node.outputs]
        observer.executed(node, inputs, outputs)
        self._emulated(node, outputs)
        if not path:
            self.nodes += 1
        for name in {*graph.reads[node.index], *node.outputs}:
            if graph.last_reads.get(name, -1) <= node.index and name not in graph.outputs:
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

    def _opened(self, scope: Scope, begin: int, end: int, *, turned: bool) -> Segment:
        graph = scope.graph
        types = {
            name: scope.kind(name)
            for index in range(begin, end)
            for name in graph.reads[index]
            if not begin <= graph.producers.get(name, -1) < end and scope.has(name)
        }
        key = id(graph), begin, end, turned, tuple((name, kind.SerializeToString()) for name, kind in types.items())
        segment = self._segments.get(key)
        if segment is None:
            blocks = self.blocks(graph)
            unread = frozenset(name for name in blocks.aliases if graph.last_reads.get(name, -1) < end)
            model = tapped(graph, begin, end, types, blocks if turned else None, unread)
            session = as_executed(self.settings, self.handed(model.model), lean=self.lean)
            segment = Segment(begin, end, model, session)
            # a NodeArg keeps its whole session: only what it says is kept
            for output in session.get_outputs():
                if str(output.type).startswith("optional("):
                    segment.kinds[str(output.name)] = type_of(str(output.type))
            self._segments[key] = segment
            self._own(graph)
        return segment

    def handed(self, model: onnx.ModelProto) -> str | bytes:
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
        give_back()


def _holds_external(graph: onnx.GraphProto) -> bool:
    return any(tensor.external_data for tensor in graph.initializer) or any(
        _holds_external(body) for node in graph.node for _, body in bodies_of(node)
    )
