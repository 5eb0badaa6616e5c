"""One change at one node of an ONNX model, and disguises: other names, no metadata."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

WEIGHTED = frozenset(
    "Conv ConvTranspose Gemm MatMul LSTM GRU LayerNormalization BatchNormalization InstanceNormalization Add Mul Gather"
    "".split()
)
ROUNDED = frozenset("Conv Gemm MatMul Add Mul Relu Sigmoid Tanh Softmax LayerNormalization Gelu Div Exp Sqrt".split())
NORMS = frozenset(("LayerNormalization", "BatchNormalization", "InstanceNormalization"))
KINDS = {
    "Softmax": "axis",
    "LogSoftmax": "axis",
    "Gelu": "gelu",
    "AveragePool": "pad",
    "Transpose": "permutation",
    "Where": "mask",
}
LEAST = 1e-5
"""A change that moves the outputs by less, relative to their size, is hardly one."""


class Change(NamedTuple):
    """What is changed, and at which node; of a weight also which operand it is."""

    kind: str
    node: int
    operand: int = 0


class Planted(NamedTuple):
    """A changed model, the names of the node or of its values, and what was changed."""

    model: onnx.ModelProto
    names: frozenset[str]
    kind: str


def every(graph: onnx.GraphProto) -> Iterator[tuple[onnx.GraphProto, onnx.NodeProto]]:
    """The nodes of a graph and of the bodies in it, each with the graph that it stands in."""
    for node in graph.node:
        yield graph, node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from every(attribute.g)


def changes(model: onnx.ModelProto) -> list[Change]:
    """All that can be changed in a model."""
    nodes = list(every(model.graph))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    readers = Counter(name for _, node in nodes for name in node.input)
    found: list[Change] = []
    for place, (_, node) in enumerate(nodes):
        for operand, name in enumerate(node.input):
            tensor = weights.get(name)
            alone = tensor is not None and tensor.data_type == TensorProto.FLOAT and readers[name] == 1
            if alone and tensor is not None and np.prod(tensor.dims) > 1 and node.op_type in WEIGHTED:
                found.append(Change("weight", place, operand))
        if node.op_type in NORMS:
            found.append(Change("epsilon", place))
        if node.op_type in KINDS:
            found.append(Change(KINDS[node.op_type], place))
        if node.op_type in ROUNDED:
            found.append(Change("cast", place))
    return found


def planted(
    original: onnx.ModelProto, feeds: dict[str, np.ndarray], draw: random.Random, *, disguise: bool
) -> Planted | None:
    """A change that moves the outputs; None where forty that were drawn do not."""
    possible = changes(original)
    kinds = sorted({change.kind for change in possible})
    before = outputs(original, feeds)
    for _ in range(40):
        kind = draw.choice(kinds)
        change = draw.choice([one for one in possible if one.kind == kind])
        made = _changed(original, change, draw)
        if made is None or _moved(before, made.model, feeds) <= LEAST:
            continue
        if disguise:
            names = renamed(made.model)
            made = made._replace(names=frozenset(names.get(name, name) for name in made.names))
        nodes = (node.name for _, node in every(made.model.graph) if made.names & {*node.output, node.name})
        return made._replace(names=made.names | frozenset(nodes))
    return None


def outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[Any]:
    """The outputs of a model as it is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return list(session.run(None, {value.name: feeds[value.name] for value in model.graph.input}))


def _moved(before: list[Any], model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    try:
        after = outputs(model, feeds)
    except Exception:
        return 0.0
    far = [
        float(np.abs(x - y).max()) / max(float(np.abs(x).max()), 1e-9) if x.shape == y.shape else 1.0
        for x, y in zip(before, after, strict=True)
    ]
    return max(far)


def _changed(original: onnx.ModelProto, change: Change, draw: random.Random) -> Planted | None:
    model = onnx.ModelProto()
    model.CopyFrom(original)
    graph, node = list(every(model.graph))[change.node]
    names = frozenset((node.output[0],))
    match change.kind:
        case "weight":
            tensor = next(one for one in model.graph.initializer if one.name == node.input[change.operand])
            values = np.array(numpy_helper.to_array(tensor))
            values.reshape(-1)[draw.randrange(values.size)] += 1e-2
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        case "epsilon":
            set_attribute(node, "epsilon", 1e-3)
        case "axis":
            set_attribute(node, "axis", 0 if _get(node, "axis", -1) != 0 else 1)
        case "gelu":
            set_attribute(node, "approximate", "none" if _get(node, "approximate", b"none") == b"tanh" else "tanh")
        case "pad":
            set_attribute(node, "count_include_pad", 1 - _get(node, "count_include_pad", 0))
        case "permutation":
            order = list(_get(node, "perm", []))
            one, other = draw.sample(range(len(order)), 2)
            order[one], order[other] = order[other], order[one]
            set_attribute(node, "perm", order)
        case "mask":
            node.input[1] = node.input[2]
        case _:
            return _cast(model, graph, node)
    return Planted(model, names, change.kind)


def _cast(model: onnx.ModelProto, graph: onnx.GraphProto, rounded: onnx.NodeProto) -> Planted | None:
    """The result of a node by way of float16."""
    value = rounded.output[0]
    if value in {one.name for one in graph.output}:
        return None
    half, back = f"{value}_half", f"{value}_back"
    place = next(number for number, node in enumerate(graph.node) if value in node.output)
    for node in graph.node:
        node.input[:] = [back if name == value else name for name in node.input]
    down = helper.make_node("Cast", [value], [half], name=f"{half}_cast", to=TensorProto.FLOAT16)
    up = helper.make_node("Cast", [half], [back], name=f"{back}_cast", to=TensorProto.FLOAT)
    graph.node.insert(place + 1, down)
    graph.node.insert(place + 2, up)
    return Planted(model, frozenset((down.name, up.name, half, back)), "cast")


def _get(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = next((one for one in node.attribute if one.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give a node an attribute in the place of the one of that name."""
    kept = [one for one in node.attribute if one.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def renamed(model: onnx.ModelProto) -> dict[str, str]:
    """Give everything but inputs and outputs another name, and drop what the exporter wrote beside; the new names."""
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}
    names: dict[str, str] = {}

    def other(name: str) -> str:
        return name if not name or name in kept else names.setdefault(name, f"t{len(names)}")

    for number, (_, node) in enumerate(every(model.graph)):
        names[node.name] = node.name = f"n{number}"
        del node.metadata_props[:]
        node.doc_string = ""
        node.input[:] = [other(name) for name in node.input]
        node.output[:] = [other(name) for name in node.output]
    graphs = {id(graph): graph for graph, _ in every(model.graph)}
    for graph in graphs.values():
        for one in (*graph.initializer, *graph.input, *graph.output):
            one.name = other(one.name)
        del graph.value_info[:]
    del model.metadata_props[:]
    return names
