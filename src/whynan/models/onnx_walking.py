"""The parts of an ONNX model one after another: its graphs, those in bodies and functions, their nodes and tensors."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import onnx

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto


class Held(NamedTuple):
    """A node, and the function whose body it stands in; None for the graph and the bodies of its nodes."""

    node: NodeProto
    function: FunctionProto | None


def nodes(model: ModelProto) -> Iterator[Held]:
    """Every node: of the graph, of the functions, and of the bodies in either."""
    for node in nodes_of(model.graph.node):
        yield Held(node, None)
    for function in model.functions:
        for node in nodes_of(function.node):
            yield Held(node, function)


def nodes_of(first: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, each followed by those of its bodies."""
    # protobuf refuses what is nested deeper than 100 levels
    for node in first:
        yield node
        for body in bodies(node):
            yield from nodes_of(body.node)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds: branches, the body of a loop."""
    for attribute in node.attribute:
        yield from _graphs(attribute)


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def graphs(model: ModelProto) -> Iterator[GraphProto]:
    """Every graph: the model's, those of its training information, and all bodies."""
    yield model.graph
    for information in model.training_info:
        yield information.initialization
        yield information.algorithm
        for node in nodes_of((*information.initialization.node, *information.algorithm.node)):
            yield from bodies(node)
    for node, _ in nodes(model):
        yield from bodies(node)


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor that the model holds or refers to."""
    for graph in graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
        for node in graph.node:
            yield from _attributed(node.attribute)
    for function in model.functions:
        yield from _attributed(function.attribute_proto)
        for node in function.node:
            yield from _attributed(node.attribute)


def _attributed(attributes: Iterable[onnx.AttributeProto]) -> Iterator[TensorProto]:
    for attribute in attributes:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for sparse in (
            *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ()),
            *attribute.sparse_tensors,
        ):
            yield sparse.values
            yield sparse.indices
