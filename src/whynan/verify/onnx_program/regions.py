"""The changed part of a graph: its nodes before and after, and what it read in the run."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import inliner

from whynan.capture.onnx.engine import EngineSettings, open_engine
from whynan.capture.onnx.execution import RunError
from whynan.models.onnx.model import bodies, nodes_of
from whynan.ops.table import ONNX
from whynan.verify.onnx_program.run import Engines, Unrunnable, with_outputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

    from whynan.capture.onnx.execution import Node, SingleNodeRunner, Value


# -- The part of a graph that a repair has changed: nodes before and after, and the values between them and the rest


_FAR: Final = 8
_BACK: Final = 3
"""Nodes before and behind a part."""


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes before and after, the values that they read and give, and the constants that they use.

    ``way`` leads to the body in which they stand: the node that holds it, by its first output, and the attribute.
    """

    way: tuple[tuple[str, str], ...]
    before: tuple[NodeProto, ...]
    after: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[TensorProto, ...]


def inline_functions(model: ModelProto) -> ModelProto:
    """A model whose local functions are opened up, so that what they do stands in its graph."""
    return inliner.inline_local_functions(model) if model.functions else model


def changed_region(
    original: ModelProto, repaired: ModelProto, *, follow: bool = True, made: frozenset[str] = frozenset()
) -> Region | None:
    """The part that a repair has changed; None where nothing is, or where no single part of one graph is.

    Both are to be inlined. With ``follow`` what is computed behind the part belongs to it, a few nodes far: there an
    infinity may be made harmless, and a number beyond the range of its dtype come back into it. What writes the values
    ``made`` belongs to it too.
    """
    return _Finder(follow, made).find_region(original.graph, repaired.graph, (), ())


def upstream_values(model: ModelProto, region: Region) -> frozenset[str]:
    """What the inputs of a part in the main graph are computed of, a few nodes back: the values on the way."""
    makers = {name: node for node in model.graph.node for name in node.output}
    found: set[str] = set()
    front = set(region.inputs)
    for _ in range(_BACK):
        reached = {name for name in front if name in makers and makers[name].op_type in ONNX.having("follows")} - found
        found |= reached
        front = {name for one in reached for name in makers[one].input}
    return frozenset(found)


class _Finder:
    """Finds what was changed, body by body."""

    def __init__(self, follow: bool, made: frozenset[str]) -> None:
        self._follow = follow
        self._made = made

    def find_region(
        self, before: GraphProto, after: GraphProto, way: tuple[tuple[str, str], ...], around: tuple[TensorProto, ...]
    ) -> Region | None:
        """The part that differs between two graphs."""
        held = {tensor.name: tensor.SerializeToString() for tensor in before.initializer}
        other = {tensor.name: tensor.SerializeToString() for tensor in after.initializer}
        differing = {name for name in held.keys() & other.keys() if held[name] != other[name]}
        old = {_key(node, differing, "-"): node for node in before.node}
        new = {_key(node, differing, "+"): node for node in after.node}
        gone = [node for key, node in old.items() if key not in new]
        come = [node for key, node in new.items() if key not in old]
        constants = (*around, *before.initializer, *(one for one in after.initializer if one.name not in held))
        if len(gone) == len(come) == 1 and gone[0].op_type == come[0].op_type and list(bodies(gone[0])):
            return self._region_in_body(gone[0], come[0], way, constants)
        if differing or (not gone and not come):
            # one name would be two constants
            return None
        return self._region(before, after, gone, come, way, constants)

    def _region_in_body(
        self, gone: NodeProto, come: NodeProto, way: tuple[tuple[str, str], ...], around: tuple[TensorProto, ...]
    ) -> Region | None:
        """The change in the body of a node, if it is in one of them."""
        found: list[Region] = []
        others = {attribute.name: attribute for attribute in come.attribute}
        for attribute in gone.attribute:
            other = others.get(attribute.name)
            if attribute.type == onnx.AttributeProto.GRAPH and other is not None:
                region = self.find_region(attribute.g, other.g, (*way, (gone.output[0], attribute.name)), around)
                if region is not None:
                    found.append(region)
        return found[0] if len(found) == 1 else None

    def _region(
        self,
        before: GraphProto,
        after: GraphProto,
        gone: Sequence[NodeProto],
        come: Sequence[NodeProto],
        way: tuple[tuple[str, str], ...],
        constants: tuple[TensorProto, ...],
    ) -> Region | None:
        names = {tensor.name for tensor in constants} | _constant_values(before) | _constant_values(after)
        old = _path_closure(before, [*gone, *self._makers(before, gone)], names)
        new = _path_closure(after, [*come, *self._makers(after, come)], names)
        written = _output_names(old) & _output_names(new) if old and new else _output_names(old) | _output_names(new)
        unchanged = [node for node in before.node if not _is_in(node, gone)]
        read = _input_names(old) | _input_names(new)
        followed = _downstream_nodes(unchanged, written, names, read) if self._follow else []
        old, new = _in_order(before, [*old, *followed]), _in_order(after, [*new, *followed])
        inputs = [name for name in _free([*old, *new], names) if name]
        outputs = [name for name in _outputs(before, old) if name in _output_names(new)]
        if not outputs:
            return None
        used = _input_names(old) | _input_names(new)
        made = [node for node in (*before.node, *after.node) if node.op_type == "Constant" and set(node.output) & used]
        own = {name for node in made for name in node.output}
        return Region(
            way,
            tuple(_add_makers(made, old)),
            tuple(_add_makers(made, new)),
            tuple(name for name in dict.fromkeys(inputs) if name not in own),
            tuple(dict.fromkeys(outputs)),
            tuple({tensor.name: tensor for tensor in constants if tensor.name in used}.values()),
        )

    def _makers(self, graph: GraphProto, known: Sequence[NodeProto]) -> list[NodeProto]:
        return [node for node in graph.node if set(node.output) & self._made and not _is_in(node, known)]


def _key(node: NodeProto, differing: set[str], sign: str) -> bytes:
    """What a node does: all of it but its own name and what is said of it."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for name in ("name", "doc_string", "metadata_props"):
        copy.ClearField(name)
    for attribute in copy.attribute:
        # to read a constant with onnx-ir gives its tensor a name
        if attribute.HasField("t"):
            attribute.t.ClearField("name")
    read = {name for name in node.input if name in differing}
    return copy.SerializeToString(deterministic=True) + (sign.encode() if read else b"")


def _add_makers(made: Sequence[NodeProto], nodes: Sequence[NodeProto]) -> list[NodeProto]:
    kept = {node.output[0]: node for node in made if not _is_in(node, nodes)}
    written = _output_names(nodes)
    return [*(node for name, node in kept.items() if name not in written), *nodes]


def _constant_values(graph: GraphProto) -> set[str]:
    return {name for node in graph.node if node.op_type == "Constant" for name in node.output}


def _path_closure(graph: GraphProto, nodes: Sequence[NodeProto], constants: set[str]) -> list[NodeProto]:
    """Nodes, and those on a way that leads from them back to them."""
    behind, ahead = set(_output_names(nodes)), {name for name in _input_names(nodes) if name not in constants}
    down: list[NodeProto] = []
    for node in graph.node:
        if set(_uses(node)) & behind:
            down.append(node)
            behind.update(node.output)
    between = list(nodes)
    for node in reversed(graph.node):
        if set(node.output) & ahead:
            ahead.update(_uses(node))
            if _is_in(node, down) and not _is_in(node, between):
                between.append(node)
    return _in_order(graph, between)


def _downstream_nodes(
    nodes: Sequence[NodeProto], written: set[str], constants: set[str], read: set[str]
) -> list[NodeProto]:
    """What is done with values of a region, and with what else the region reads."""
    found: list[NodeProto] = []
    known = set(written)
    beside = {name for name in read if name not in constants}
    pulled: dict[str, NodeProto] = {}
    for node in nodes:
        if node.op_type not in ONNX.having("follows"):
            continue
        operands = {name for name in node.input if name and name not in constants}
        if operands & known and len(found) < _FAR:
            needed = [pulled[name] for name in operands if name in pulled]
            found += [one for one in needed if not _is_in(one, found)]
            found.append(node)
            known.update(node.output)
        elif operands and operands <= beside | pulled.keys():
            pulled.update(dict.fromkeys(node.output, node))
    return found


def _in_order(graph: GraphProto, nodes: Iterable[NodeProto]) -> list[NodeProto]:
    wanted = {node.output[0] for node in nodes}
    return [node for node in graph.node if node.output and node.output[0] in wanted]


def _free(nodes: Sequence[NodeProto], constants: set[str]) -> list[str]:
    """What nodes read that none of them writes."""
    written = _output_names(nodes)
    return [name for node in nodes for name in _uses(node) if name not in written and name not in constants]


def _outputs(graph: GraphProto, nodes: Sequence[NodeProto]) -> list[str]:
    """What others read of what nodes write, and what leaves the graph."""
    outside = {name for node in graph.node if not _is_in(node, nodes) for name in _uses(node)}
    outside |= {value.name for value in graph.output}
    return [name for node in nodes for name in node.output if name in outside]


def _uses(node: NodeProto) -> list[str]:
    """What a node reads, and what its bodies read of the graph around them."""
    found = list(node.input)
    for body in bodies(node):
        inside = list(nodes_of(body.node))
        held = _output_names(inside) | {value.name for value in body.input} | {one.name for one in body.initializer}
        for one in inside:
            for inner in bodies(one):
                held |= {value.name for value in inner.input} | {tensor.name for tensor in inner.initializer}
        read = [*(name for one in inside for name in one.input), *(value.name for value in body.output)]
        found += [name for name in read if name not in held]
    return [name for name in found if name]


def _is_in(node: NodeProto, nodes: Iterable[NodeProto]) -> bool:
    return any(node is one for one in nodes)


def _output_names(nodes: Iterable[NodeProto]) -> set[str]:
    return {name for node in nodes for name in node.output if name}


def _input_names(nodes: Iterable[NodeProto]) -> set[str]:
    return {name for node in nodes for name in _uses(node)}


# -- What the changed part of a graph read in the run: in the main graph, or in the iterations of a body ---------------


_MOST: Final = 8
"""Iterations of a body that are kept."""


def captured_in(
    model: onnx.ModelProto, region: Region, feeds: Sequence[Mapping[str, Any]], engines: Engines
) -> list[dict[str, Any]]:
    """The values that a region reads, for each input and for each iteration of its body."""
    if region.way:
        return [values for feed in feeds for values in _body_values(model, region, feed, engines)]
    session = engines.open_model(with_outputs(model, region.inputs))
    found = ({**session.run(feed), **feed} for feed in feeds)
    return [{name: np.asarray(values[name]) for name in region.inputs} for values in found]


def _body_values(
    model: onnx.ModelProto, region: Region, feed: Mapping[str, Any], engines: Engines
) -> list[dict[str, Any]]:
    """The values in a body, which an observer is told of."""
    with tempfile.TemporaryDirectory(prefix="whynan-") as folder:
        path = Path(folder, "model.onnx")
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        if engines.folder is not None:
            onnx.load_external_data_for_model(whole, engines.folder)
        path.write_bytes(whole.SerializeToString())
        seen = _BodyObserver(region)
        settings = EngineSettings(
            path=str(path), graph="original", engine=engines.engine, custom_ops=engines.custom_ops, intra_threads=1
        )
        try:
            with open_engine(settings) as engine:
                engine.run(feed, seen, compare=False)
        except RunError as error:
            raise Unrunnable(error.what) from error
    return seen.found


class _BodyObserver:
    """Keeps what is read by the nodes of a body, iteration by iteration."""

    def __init__(self, region: Region) -> None:
        self._names = frozenset(region.inputs)
        self._last = region.before[-1].output[0]
        self._held: dict[str, Any] = {}
        self.found: list[dict[str, Any]] = []

    def on_begin(self, nodes: Sequence[Node], alone: SingleNodeRunner) -> None:
        """Nothing is needed of them."""

    def on_values(self, values: Sequence[Value]) -> None:
        """Nothing is needed of them."""

    def on_input(self, name: str, value: Value, kind: str) -> None:  # noqa: ARG002
        """An input or a constant."""
        self._keep(name, value)

    def on_body_enter(self, names: Sequence[str], values: Sequence[Value], carried: Sequence[str]) -> None:  # noqa: ARG002
        """The inputs of a body."""
        for name, value in zip(names, values, strict=False):
            self._keep(name, value)

    def on_node(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """What a node read and wrote; with the last of the region one of its inputs is whole."""
        for name, value in (*zip(node.inputs, inputs, strict=False), *zip(node.outputs, outputs, strict=False)):
            self._keep(name, value)
        if self._last in node.outputs and self._names <= self._held.keys() and len(self.found) < _MOST:
            self.found.append(dict(self._held))

    def on_body_leave(self, names: Sequence[str], values: Sequence[Value]) -> None:
        """Nothing is needed of them."""

    def on_output(self, name: str, value: Value) -> None:
        """Nothing is needed of it."""

    def _keep(self, name: str, value: Value) -> None:
        if name in self._names and isinstance(value, np.ndarray):
            self._held[name] = np.array(value)
