"""Where an executed node comes from: the PyTorch line, the module, and the nodes of the model as written."""

# pyright: strict

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from whynan.capture.onnx import names
from whynan.capture.onnx.covers import MOVES, Cover, covers
from whynan.capture.onnx.graphs import Graph, Operation, Value, opened
from whynan.capture.onnx.pairing import paired

if TYPE_CHECKING:
    import onnx

    from whynan.capture.onnx.execution import Node
    from whynan.records import Site

_TOLD: Final = 4
"""Nodes that a fused one is said to be made from, before the rest is only counted."""


class Place(NamedTuple):
    """Where an executed node comes from, and what it and its value are called in a report.

    ``module`` is also there where the model carries no line. ``value`` is the name that the file gives to the same
    numbers, where the executed graph calls them otherwise.
    """

    site: Site | None
    library_site: Site | None
    module: str | None
    node: str
    value: str
    op: str


class Recorded(Protocol):
    """What a map that was written beside a model knows of one value."""

    @property
    def site(self) -> Site | None:
        """The line that made it."""
        ...

    @property
    def library_site(self) -> Site | None:
        """The library's line, where the innermost is one."""
        ...

    @property
    def module(self) -> str | None:
        """The path of the module."""
        ...


class Beside(Protocol):
    """A map that was written beside a model when it was exported: from the names of its values to lines."""

    def get(self, value: str, /) -> Recorded | None:
        """What is known of a value."""
        ...


class Reading(Protocol):
    """What reads the metadata of a node, and the module out of its name."""

    def site_of(self, metadata: Mapping[str, str], /) -> Site | None:
        """The user's line."""
        ...

    def module_of(self, node_name: str, /) -> str | None:
        """The path of the module."""
        ...


class Sites:
    """The places of all nodes of an executed model; what cannot be told is None, and counted in ``notes``."""

    def __init__(
        self,
        original: onnx.ModelProto,
        executed: onnx.ModelProto,
        sidecar: Beside | None = None,
        *,
        reading: Reading | None = None,
    ) -> None:
        self._read = reading or _source()
        self._beside = sidecar
        self._main = opened(executed)
        self._pairing = paired(self._main, opened(original))
        self._covers = covers(self._pairing)
        self._found: dict[tuple[tuple[tuple[str, str], ...], str, tuple[str, ...]], Operation | None] = {}
        self._places: dict[Operation, tuple[Site | None, Site | None, str | None]] = {}

    def site(self, node: Node, output: str) -> Place:
        """The place of a node, and of one value that it wrote."""
        op = self._operation(node)
        if op is None:
            site, library, module = self._of_names((output,))
            return Place(site, library, module, node.name or output, output, node.op)
        if op not in self._places:
            self._places[op] = self._placed(op)
        return Place(*self._places[op], node.name or output, self._value(op, output), node.op)

    def covers(self, node: Node) -> tuple[str, ...]:
        """The names of the nodes of the file that an executed node was made from; a nameless one by its value."""
        op = self._operation(node)
        return () if op is None else tuple(_name(written) for written in self._cover(op).nodes)

    def note(self, node: Node) -> str | None:
        """What a fused node was made from, in words; None for one that stands in the file as it is."""
        op = self._operation(node)
        if op is None:
            return None
        cover = self._cover(op)
        made = [written for written in cover.nodes if self._computes(written)]
        made = made or [written for written in cover.nodes if self._counts(written)]
        if not made:
            return f"hands on what {_named(cover.chief)} gives" if self._added(op, cover) else None
        if cover.others:
            return (
                f"with {cover.others} other nodes made from {_listed(made)}"
                if len(made) > 1
                else f"part of {_listed(made)}"
            )
        if len(made) == 1:
            return None if made[0].op == op.op else f"made from {_listed(made)}"
        return f"fused from {_listed(made)}"

    @property
    def unmapped(self) -> tuple[str, ...]:
        """The executed nodes of which the node of the file is not known, by name."""
        ops = [op for graph in _graphs(self._main) for op in graph.operations]
        return tuple(_name(op) for op in ops if self._cover(op).chief is None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report has to say of nodes that could not be led back to the file."""
        lost = self.unmapped
        if not lost:
            return ()
        total = sum(len(graph.operations) for graph in _graphs(self._main))
        told = ", ".join(lost[:_TOLD]) + (" and others" if len(lost) > _TOLD else "")
        return (f"{len(lost):,} of {total:,} executed nodes could not be led back to nodes of the file: {told}",)

    def _cover(self, op: Operation) -> Cover:
        return self._covers.get(op, Cover((), None))

    def _computes(self, written: Operation) -> bool:
        """Whether it computes numbers, and no other node the same ones."""
        first = (self._pairing.representative(value) is value for value in written.writes())
        return self._counts(written) and any(first)

    def _counts(self, written: Operation) -> bool:
        return not all(value.shape_only or value.constant for value in written.writes())

    def _added(self, op: Operation, cover: Cover) -> bool:
        return cover.chief is not None and op.op in MOVES and cover.chief.op != op.op

    def _value(self, op: Operation, output: str) -> str:
        value = next((value for value in op.writes() if value.name == output), None)
        if value is None or value not in self._pairing.renamed:
            return output
        return self._pairing.values[value].name

    def _placed(self, op: Operation) -> tuple[Site | None, Site | None, str | None]:
        cover = self._cover(op)
        module: str | None = None
        for written in _nearest(op, cover, self._pairing.values):
            site, library, named = self._of(written)
            module = module or named
            if site is not None or library is not None:
                return site, library, (site.module if site is not None else None) or named or module
        site, library, named = self._of_names(_called(op))
        return site, library, module or named

    def _of(self, written: Operation) -> tuple[Site | None, Site | None, str | None]:
        for metadata in written.metadata:
            site = self._read.site_of(metadata) if metadata else None
            if site is not None:
                return site, None, site.module
        site, library, module = self._of_names(tuple(value.name for value in written.writes()))
        if site is None and module is None:
            named = (self._read.module_of(name) for name in (written.name, *written.calls) if name)
            module = next((found for found in named if found), None)
        return site, library, module

    def _of_names(self, values: Sequence[str]) -> tuple[Site | None, Site | None, str | None]:
        if self._beside is not None:
            for name in values:
                known = self._beside.get(name)
                if known is not None:
                    return known.site, known.library_site, known.module
        return None, None, None

    def _operation(self, node: Node) -> Operation | None:
        way = tuple((holder, attribute) for holder, attribute, _ in node.body)
        key = (way, node.name, node.outputs)
        if key not in self._found:
            graphs = [self._main]
            for holder, attribute in way:
                graphs = [body for graph in graphs for body in _bodies(graph, holder, attribute)]
            self._found[key] = next((op for graph in graphs for op in _written_by(graph, node)), None)
        return self._found[key]


def _written_by(graph: Graph, node: Node) -> Iterator[Operation]:
    """The node that writes these values; else the one that has this name."""
    wanted = [output for output in node.outputs if output]
    for output in wanted:
        value = graph.values.get(output)
        if value is not None and value.maker is not None and value.maker.graph is graph:
            yield value.maker
            return
    yield from (op for op in graph.operations if node.name and op.name == node.name and op.op == node.op)


def _bodies(graph: Graph, holder: str, attribute: str) -> list[Graph]:
    """The bodies that a node holds, by its name or that of a value of it."""
    held = [op for op in graph.operations if attribute in op.bodies]
    found = [op for op in held if op.name == holder and holder]
    found = found or [op for op in held if holder in {value.name for value in op.writes()}]
    return [op.bodies[attribute] for op in found or [op for op in held if not op.name]]


def _nearest(op: Operation, cover: Cover, values: Mapping[Value, Value]) -> list[Operation]:
    """The written nodes that may carry the line: the one that stands for it, then those that it was made from."""
    same = [found.maker for value in op.writes() if (found := values.get(value)) is not None]
    chain = [cover.chief, *same, *reversed(cover.nodes)] if cover.chief is not None else []
    if cover.chief is None and len({repr(node.metadata) for node in cover.nodes}) == 1:
        chain = list(cover.nodes)
    return [node for node in dict.fromkeys(chain) if node is not None]


def _called(op: Operation) -> tuple[str, ...]:
    """What the values of a node may be called in the file that it was made from."""
    found = [name for value in op.writes() for name in (value.name, *names.of_value(value.name))]
    blocked = names.blocked(op.name)
    return tuple(dict.fromkeys([*found, *([blocked] if blocked else [])]))


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for op in graph.operations:
        for body in op.bodies.values():
            yield from _graphs(body)


def _name(op: Operation) -> str:
    own = op.name or next((value.name for value in op.writes()), op.op)
    return "/".join((*reversed(op.calls), own))


def _named(op: Operation | None) -> str:
    return "another node" if op is None else f"{op.op} {_name(op)}"


def _listed(ops: Sequence[Operation]) -> str:
    if len(ops) > _TOLD:
        return f"{len(ops):,} nodes: {_named(ops[0])}, {_named(ops[1])}, ... {_named(ops[-1])}"
    if len(ops) == 1:
        return _named(ops[0])
    return f"{', '.join(_named(op) for op in ops[:-1])} and {_named(ops[-1])}"


def _source() -> Reading:
    module: Callable[..., Reading] | Reading = import_module("whynan.source.onnx")  # type: ignore[assignment]
    return module  # type: ignore[return-value]
