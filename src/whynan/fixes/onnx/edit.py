"""A model under edit: read with its types, changed at the finding's node, written and checked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import onnx
import onnx_ir as ir

from whynan.fixes.onnx.build import Builder, Unwritable
from whynan.fixes.onnx.read import GraphReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from whynan.records import Finding


# -- Where a finding's node stands in a model: in its graph, in a body, or in a local function -------------------------


_TOKEN: Final = re.compile(r"_token_\d+|InsertedPrecisionFreeCast_")
_MADE: Final = re.compile(r"(?:^|,| and | of | from )\s*([A-Z]\w*) ([^\s,]+)")


def finding_nodes(model: ir.Model, finding: Finding) -> list[ir.Node]:
    """The nodes of the file that a finding is about, the likeliest first; none where they cannot be found.

    A value or node of a body or a function is called with the way to it; what was fused by what it was made of.
    """
    nodes = list(all_nodes(model))
    wanted = [name for told in (finding.node, finding.value) if told for name in _path_suffixes(_TOKEN.sub("", told))]
    made = [name for _, name in _MADE.findall(finding.made_of or "")]
    found: dict[int, ir.Node] = {}
    names = {id(node): _names(model, node) for node in nodes}
    for name in (*wanted, *(tail for one in made for tail in _path_suffixes(one))):
        for node in nodes:
            if name in names[id(node)]:
                found.setdefault(id(node), node)
    exact = [node for node in found.values() if node.op_type == finding.op]
    return exact or list(found.values())


def _names(model: ir.Model, node: ir.Node) -> set[str]:
    """What a node may be called, and each value that it writes; in a function as once its call is opened up."""
    names = {name for name in (node.name, *(value.name for value in node.outputs)) if name}
    if isinstance(node.graph, ir.Function) or any(
        node.graph is function.graph for function in model.functions.values()
    ):
        holders = [one for one in model.functions.values() if any(node is held for held in one)]
        names |= {f"_inlfunc_{one.name}_{_TOKEN.sub('', name)}" for one in holders for name in set(names)}
    return names


def _path_suffixes(name: str) -> Iterator[str]:
    """A name, and what is left of it without the way to it."""
    name = re.sub(r"\[\d+\]/", "/", name)
    yield name
    while "/" in name:
        name = name.partition("/")[2]
        if name:
            yield name


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node: of the graph, of its bodies, of the functions."""
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def opset_at(model: ir.Model, node: ir.Node) -> int:
    """The version of ONNX's own operators where a node stands."""
    for function in model.functions.values():
        if any(one is node for one in ir.traversal.RecursiveGraphIterator(function)):
            return _version(function.opset_imports) or _version(model.opset_imports) or 1
    return _version(model.opset_imports) or 1


def _version(imports: Mapping[str, int]) -> int | None:
    return imports.get("", imports.get("ai.onnx"))


def downstream(node: ir.Node, hops: int) -> Iterator[ir.Node]:
    """A node and those that read it, nearest first, in the same graph."""
    seen, front = {id(node)}, [node]
    yield node
    for _ in range(hops):
        following: list[ir.Node] = []
        for reader in (use.node for one in front for value in one.outputs for use in value.uses()):
            if id(reader) not in seen and reader.graph is node.graph:
                seen.add(id(reader))
                following.append(reader)
                yield reader
        front = following


# -- A model that is being edited: read with its types, changed in one place, written and checked ----------------------


_SAID: Final = 160


def uneditable_reason(model: onnx.ModelProto) -> str | None:
    """Why a model cannot be edited; None where it can."""
    if model.training_info:
        return "the model holds training information, which onnx-ir does not keep"
    if model.graph.sparse_initializer:
        return "the model holds sparse weights, which onnx-ir does not keep"
    return None


class Edit:
    """One edit of a model, which itself stays as it is."""

    def __init__(self, model: onnx.ModelProto, known: onnx.ModelProto | None = None) -> None:
        self._before = model
        # what is read from a proto shares its tensors
        copy = onnx.ModelProto()
        copy.CopyFrom(known or with_inferred_types(model))
        self.model = ir.from_proto(copy)
        self._readers: dict[int, GraphReader] = {}
        self.names = {value.name or "" for node in all_nodes(self.model) for value in node.outputs}
        self.names |= {node.name or "" for node in all_nodes(self.model)}
        self.names |= {value.name or "" for value in self.model.graph.inputs} | set(self.model.graph.initializers)

    def reader(self, at: ir.Node) -> GraphReader:
        """What reads the values at a place."""
        opset = opset_at(self.model, at)
        return self._readers.setdefault(opset, GraphReader(opset))

    def builder(self, at: ir.Node, finding: Finding) -> Builder:
        """What makes nodes for a place; raises ``Unwritable`` where the numbers there have no known dtype."""
        output = at.outputs[0].dtype
        kinds = [output, *(value.dtype for value in at.inputs if value is not None)]
        known = [kind for kind in kinds if kind is not None and kind.is_floating_point()]
        if known:
            return Builder(opset_at(self.model, at), known[0], self.names)
        try:
            dtype = ir.DataType.from_numpy(_numpy(finding.element.dtype))
        except (TypeError, AttributeError):
            raise Unwritable("the dtype is not known") from None
        return Builder(opset_at(self.model, at), dtype, self.names)

    def replace(self, root: ir.Node, made: ir.Value, builder: Builder, old: Iterable[ir.Node]) -> None:
        """Let new nodes stand for a node, before which they are put; of the old ones what nobody reads any more goes.

        The value keeps its name, and what was said of the node is said of the new ones.
        """
        if all(made.producer() is not node for node in builder.nodes):
            made = builder.op("Identity", made)
        self.insert(root, builder)
        replace_uses(root.outputs[0], made)
        remove_dead_nodes([root, *old])

    def insert(self, at: ir.Node, builder: Builder) -> None:
        """Put what was built before a node, with what is said of that."""
        for node in builder.nodes:
            node.metadata_props.update(at.metadata_props)
        if at.graph is not None:
            at.graph.insert_before(at, builder.nodes)

    def checked_model(self) -> onnx.ModelProto:
        """The model after the edit, checked; raises ``Unwritable`` with what the checker says."""
        proto = ir.to_proto(self.model)
        _drop_inferred_types(proto, self._before)
        why = checker_error(proto)
        if why is not None and checker_error(self._before) is None:
            raise Unwritable(f"onnx's checker refuses it: {why}")
        return proto


def replace_uses(old: ir.Value, new: ir.Value) -> None:
    """Let a value be read wherever another was, under its name."""
    name, kind, shape = old.name, old.type, old.shape
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name = None
    new.name, new.type, new.shape = name, kind, shape


def remove_dead_nodes(nodes: Iterable[ir.Node]) -> None:
    """Take away nodes, and the constants that they read, where nobody reads them any more."""
    left = list(dict.fromkeys(nodes))
    while True:
        dead = [node for node in left if _is_dead(node)]
        if not dead:
            return
        for node in dead:
            makers = [value.producer() for value in node.inputs if value is not None]
            constants = [maker for maker in makers if maker is not None and maker.op_type == "Constant"]
            left = [one for one in (*left, *constants) if one is not node]
            assert node.graph is not None
            node.graph.remove(node, safe=True)
        left = list(dict.fromkeys(left))


def _is_dead(node: ir.Node) -> bool:
    return node.graph is not None and not any(value.uses() or value.is_graph_output() for value in node.outputs)


def with_inferred_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model that says of every value of what type it is, as far as that can be told."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:
        # what cannot be inferred is asked for where it is needed
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy


def _drop_inferred_types(proto: onnx.ModelProto, before: onnx.ModelProto) -> None:
    """Leave out what was said of values only for the edit."""
    said = {info.name for graph in _graphs(before) for info in graph.value_info}
    for graph in _graphs(proto):
        kept = [info for info in graph.value_info if info.name in said]
        del graph.value_info[:]
        graph.value_info.extend(kept)
    for function, old in zip(proto.functions, before.functions, strict=True):
        named = {info.name for info in old.value_info}
        told = [info for info in function.value_info if info.name in named]
        del function.value_info[:]
        function.value_info.extend(told)


def _graphs(model: onnx.ModelProto) -> Iterable[Any]:
    from whynan.models.onnx.model import graphs

    return graphs(model)


def checker_error(model: onnx.ModelProto) -> str | None:
    """What onnx's checker has against a model, the bytes of its external data apart; None for nothing."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    outside = [one for one in whole.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL]
    for tensor in outside:
        whole.graph.initializer.remove(tensor)
        if all(info.name != tensor.name for info in whole.graph.input):
            whole.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    domains = {entry.domain for entry in whole.opset_import} - {"", "ai.onnx", "ai.onnx.ml"}
    domains -= {function.domain for function in whole.functions}
    try:
        checked: Any = onnx.checker
        checked.check_model(whole, full_check=not domains)
    except Exception as error:
        return str(error).strip().splitlines()[0][:_SAID]
    return None


def _numpy(name: str) -> Any:
    import ml_dtypes
    import numpy as np

    return np.dtype(getattr(ml_dtypes, name, name))
