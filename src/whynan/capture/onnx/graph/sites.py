"""Sites of executed nodes: the PyTorch line, the module, and the names that a report shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from whynan.capture.onnx.execution import BATCH
from whynan.capture.onnx.graph.model import Graph, Operation, Value, graph_and_bodies, inline_functions, listed
from whynan.capture.onnx.graph.origins import Cover, covers
from whynan.capture.onnx.graph.pairing import Pairing, pair_graphs
from whynan.models.onnx.model import nodes
from whynan.ops.table import ONNX
from whynan.records import Note
from whynan.source.exporter_metadata import Exported
from whynan.traces import Event

if TYPE_CHECKING:
    import onnx

    from whynan.capture.onnx.execution import Node
    from whynan.records import Site


# -- Where a node stands: the place in the user's source, and the names that a report shows ----------------------------


_BRANCHES: Final = frozenset(("then_branch", "else_branch"))


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


class NodePlaces(Protocol):
    """Says where a node of the executed graph comes from."""

    def site(self, node: Node, output: str) -> tuple[Site | None, Site | None, str | None, str, str, str]:
        """The user's place, the library's, the module, and the names of node, value and operator to show."""
        ...

    def fusion_note(self, node: Node) -> str | None:
        """What is said of a node that was made of others: ``was made of ...``; None for one that stands in the file."""
        ...

    def is_inserted(self, node: Node) -> bool:
        """Whether the file has no such node: what another one gives is handed on in another form."""
        ...


class Places:
    """Asks for each place once, whatever iteration of a body it is met in."""

    def __init__(self, sites: NodePlaces) -> None:
        self.sites = sites
        self._known: dict[tuple[object, ...], Place] = {}

    def place_of(self, node: Node, output: str) -> Place:
        """Where a node stands that has written a value."""
        key = (level_of(node), node.index, output)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Place(*self.sites.site(node, output))
        return found

    def fusion_note(self, node: Node) -> str | None:
        """What a node was made of, in a sentence; None for one that stands in the file as it is."""
        told = self.sites.fusion_note(node)
        return None if told is None else f"{node.op} {told}"

    def is_added(self, node: Node) -> bool:
        """Whether the engine has put a node in, to hand on what another one gives in another form."""
        return self.sites.is_inserted(node)

    def event(self, ordinal: int, node: Node, output: str) -> Event:
        """An executed node as the facts tell of it."""
        place = self.place_of(node, output)
        return Event(
            ordinal,
            place.op,
            "inference",
            with_module(place.site, place.module),
            place.library_site,
            node=path_of(node) + place.node,
            value=place.value or None,
        )


def with_module(site: Site | None, module: str | None) -> Site | None:
    """A site that tells of its module too."""
    if site is None or module is None or site.module is not None:
        return site
    return site.model_copy(update={"module": module})


def level_of(node: Node) -> tuple[tuple[str, str], ...]:
    """The body that a node stands in, whatever the iteration."""
    return tuple((holder, attribute) for holder, attribute, _ in node.body)


def path_of(node: Node) -> str:
    """The way to a node in a body, as it stands before its name: ``loop/body[3]/``; empty in the main graph."""
    found = ""
    for holder, attribute, iteration in node.body:
        turn = "" if attribute in _BRANCHES else f"[{iteration}]"
        found += f"{holder}/{attribute}{turn}/"
    return found


# -- Where an executed node comes from: the PyTorch line, the module, and the nodes of the model as written ------------


Source = tuple["Site | None", "Site | None", "str | None"]
"""The user's site, the library's, and the module."""
_MOST: Final = 4
"""Nodes that are named in a line before the rest is only counted."""


class Reading(Protocol):
    """What reads the metadata of a node, and its module (``whynan.source.exporter_metadata.Exported``)."""

    def place_of(self, metadata: Mapping[str, str], /, *, doc: str = "") -> Source:
        """The user's site, the library's, and the module, by the metadata of a node or its documentation."""
        ...

    def module_of(self, node_name: str, /) -> str | None:
        """The path of the module."""
        ...


class Sites:
    """The places of all nodes of an executed model; what cannot be told is None, and counted in ``notes``.

    ``executed`` is the model as it is executed; where it is not known beforehand, ``begins`` is to be told of its
    nodes, and until then places are told by name alone.
    """

    def __init__(
        self,
        original: onnx.ModelProto,
        executed: onnx.ModelProto | None,
        *,
        reading: Reading | None = None,
    ) -> None:
        self._original = original
        self._read = reading or Exported(
            {entry.key: entry.value for entry in held.node.metadata_props} for held in nodes(original)
        )
        self._main, self._pairing = Graph(), Pairing()
        self._covers: dict[Operation, Cover] = {}
        self._found: dict[tuple[tuple[tuple[str, str], ...], str, tuple[str, ...]], Operation | None] = {}
        self._places: dict[Operation, Source] = {}
        if executed is not None:
            self._graph(inline_functions(executed))

    def set_main_graph(self, nodes: Sequence[Node]) -> None:
        """The nodes of the main graph that is to be executed."""
        constant = {tensor.name for tensor in self._original.graph.initializer}
        given = [value.name for value in self._original.graph.input if value.name not in constant]
        left = [value.name for value in self._original.graph.output]
        self._graph(listed([node.proto for node in nodes], given, left))

    def _graph(self, executed: Graph) -> None:
        self._main = executed
        self._pairing = pair_graphs(executed, inline_functions(self._original))
        self._covers = covers(executed, self._pairing)
        self._found.clear()
        self._places.clear()

    def site(self, node: Node, output: str) -> Place:
        """The place of a node, and of one value that it wrote."""
        op = self._operation(node)
        if op is None:
            return Place(None, None, None, node.name or output, output, node.op)
        if op not in self._places:
            self._places[op] = self._placed(op)
        value = self._value(op, output)
        return Place(*self._places[op], node.name or value, value, node.op)

    def covers(self, node: Node) -> tuple[str, ...]:
        """The nodes of the file that an executed node computes, by type and name, as far as a line can hold.

        Copies, calculations of shapes and constants among them are left out where it computes something else.
        """
        return _told(self._computed(self._operation(node)))

    def originals(self, node: Node) -> tuple[str, ...]:
        """The names of all nodes of the file that an executed node was made from; a nameless one by its value."""
        op = self._operation(node)
        return () if op is None else tuple(_name(written) for written in self._cover(op).nodes)

    def fusion_note(self, node: Node) -> str | None:
        """What is said of a node that was made of others: ``was made of ...``; None for one that stands in the file."""
        op = self._operation(node)
        if op is None:
            return None
        cover, made = self._cover(op), self._computed(op)
        if not made:
            return f"hands on what {_named(cover.chief)} gives" if _added(op, cover) else None
        if len(made) == 1:
            as_it_is = made[0].op == op.op and not cover.others
            return None if as_it_is else f"{'is part of' if cover.others else 'was made of'} {_named(made[0])}"
        return f"was made{f', with {cover.others} more nodes,' if cover.others else ''} of {_listed(_told(made))}"

    def is_inserted(self, node: Node) -> bool:
        """Whether the file has no such node: what another one gives is handed on in another form."""
        op = self._operation(node)
        return op is not None and not self._computed(op) and _added(op, self._cover(op))

    @property
    def unmapped(self) -> tuple[str, ...]:
        """The executed nodes of which the node of the file is not known, by name."""
        ops = [op for graph in graph_and_bodies(self._main) for op in graph.operations]
        return tuple(_name(op) for op in ops if self._cover(op).chief is None)

    def notes(self) -> tuple[Note, ...]:
        """What a report has to say of nodes that could not be led back to the file."""
        lost = self.unmapped
        if not lost:
            return ()
        total = sum(len(graph.operations) for graph in graph_and_bodies(self._main))
        more = len(lost) > _MOST
        return (Note.create("nodes_unmapped", count=len(lost), total=total, names=tuple(lost[:_MOST]), more=more),)

    def _computed(self, op: Operation | None) -> list[Operation]:
        """The written nodes behind an executed one that compute numbers, and no other node the same ones."""
        nodes = [] if op is None else [node for node in self._cover(op).nodes if _counts(node)]
        for kept in (self._first, _changes):
            nodes = [node for node in nodes if kept(node)] or nodes
        return nodes

    def _first(self, written: Operation) -> bool:
        return any(self._pairing.representative(value) is value for value in written.writes())

    def _cover(self, op: Operation) -> Cover:
        return self._covers.get(op, Cover((), None))

    def _value(self, op: Operation, output: str) -> str:
        """What the file calls the numbers; those in a function by the calls that lead to it."""
        value = next((value for value in op.writes() if value.name == output), None)
        written = self._pairing.values.get(value) if value is not None else None
        if written is None or (value not in self._pairing.renamed and written.function is None):
            return output
        return "/".join((*reversed(written.calls), written.name))

    def _placed(self, op: Operation) -> Source:
        module: str | None = None
        for written in _nearest(op, self._cover(op), self._pairing.values):
            site, library, named = self._of(written)
            module = module or named
            if site is not None or library is not None:
                return site, library, named or module
        return None, None, module

    def _of(self, written: Operation) -> Source:
        module: str | None = None
        for metadata in written.metadata:
            site, library, named = self._read.place_of(metadata) if metadata else (None, None, None)
            module = module or named
            if site is not None or library is not None:
                return site, library, named or module
        doc = written.proto.doc_string
        site, library, _ = self._read.place_of({}, doc=doc) if doc else (None, None, None)
        if module is None:
            scoped = (self._read.module_of(name) for name in (written.name, *written.calls) if name)
            module = next((found for found in scoped if found), None)
        return site, library, module

    def _operation(self, node: Node) -> Operation | None:
        way = tuple((holder, attribute) for holder, attribute, _ in node.body if attribute != BATCH)
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


def _added(op: Operation, cover: Cover) -> bool:
    return cover.chief is not None and op.op in ONNX.having("form") and cover.chief.op != op.op


def _counts(written: Operation) -> bool:
    """Whether what it writes is known only once the model runs, and hangs on more than shapes."""
    return not all(value.shape_only or value.constant for value in written.writes())


def _changes(written: Operation) -> bool:
    """Whether it does more than to hand on numbers; a cast may make one too great."""
    return written.op not in ONNX.having("form") or written.op == "Cast"


def _name(op: Operation) -> str:
    own = op.name or next((value.name for value in op.writes()), op.op)
    return "/".join((*reversed(op.calls), own))


def _named(op: Operation | None) -> str:
    return "another node" if op is None else f"{op.op} {_name(op)}"


def _told(ops: Sequence[Operation]) -> tuple[str, ...]:
    """Nodes by type and name; of many the first, the last, and the number of the others."""
    told = [_named(op) for op in ops]
    if len(told) <= _MOST:
        return tuple(told)
    return (*told[:2], f"{len(told) - 3:,} others", told[-1])


def _listed(told: Sequence[str]) -> str:
    return " and ".join((", ".join(told[:-1]), told[-1]) if len(told) > 1 else told)
