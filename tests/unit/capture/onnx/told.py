"""Small models for the engines, and an observer that keeps all that it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from whynan.capture.onnx.arrays import copy_value, same_bits
from whynan.capture.onnx.counts import Counts
from whynan.capture.onnx.execution import Counters, Node, SingleNodeRunner, Value

FLOAT = TensorProto.FLOAT


@dataclass
class Told:
    """All that an engine said, with copies of the values, and each node run again by itself."""

    again: bool = False
    nodes: list[Node] = field(default_factory=list)
    begun: tuple[Node, ...] = ()
    entered: dict[str, tuple[Value, str]] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    counted: dict[str, Counters] = field(default_factory=dict)
    left: dict[str, Value] = field(default_factory=dict)
    bodies: list[tuple[str, tuple[str, ...], tuple[str, ...], list[Value]]] = field(default_factory=list)
    same_alone: list[bool] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    alone: SingleNodeRunner | None = None
    counts: Counts = field(default_factory=Counts)

    def on_begin(self, nodes: Sequence[Node], alone: SingleNodeRunner) -> None:
        self.begun, self.alone = tuple(nodes), alone

    def on_input(self, name: str, value: Value, kind: Any) -> None:
        self.order.append(f"enters {name}")
        self.entered[name] = copy_value(value), kind

    def on_values(self, values: Sequence[Value]) -> None:
        self.counts.ahead(values)

    def on_node(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self.order.append(f"{node.op} {node.name}")
        self.nodes.append(node)
        assert len(inputs) == len(node.inputs)
        assert len(outputs) == len(node.outputs)
        for name, value in zip(node.outputs, outputs, strict=True):
            if name and not node.body:
                self.values[name] = copy_value(value)
                self.counted[name] = self.counts(value)
        if self.again:
            assert self.alone is not None
            found = self.alone(node, inputs)
            self.same_alone.append(all(same_bits(one, two) for one, two in zip(found, outputs, strict=True)))

    def on_body_enter(self, names: Sequence[str], values: Sequence[Value], carried: Sequence[str]) -> None:
        self.order.append("enters body")
        self.bodies.append(("enters", tuple(names), tuple(carried), [copy_value(value) for value in values]))

    def on_body_leave(self, names: Sequence[str], values: Sequence[Value]) -> None:
        self.order.append("leaves body")
        self.bodies.append(("leaves", tuple(names), (), [copy_value(value) for value in values]))

    def on_output(self, name: str, value: Value) -> None:
        self.order.append(f"leaves {name}")
        self.left[name] = copy_value(value)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: dict[str, Any] | None = None,
    *,
    opset: int = 17,
    ir: int = 8,
) -> onnx.ModelProto:
    """A model; an input or output is a name, of float32 with any shape, or what onnx makes of one."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [_value(value) for value in inputs],
        [_value(value) for value in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def saved(proto: onnx.ModelProto, folder: Path, **how: Any) -> str:
    """Write a model into a folder."""
    path = str(folder / "model.onnx")
    onnx.save(proto, path, **how)
    return path


def node(op: str, inputs: str, outputs: str, name: str | None = None, **attributes: Any) -> onnx.NodeProto:
    """A node whose values are named in one string; ``-`` is a value left out."""
    names = ([n if n != "-" else "" for n in text.split()] for text in (inputs, outputs))
    return helper.make_node(op, *names, name=op.lower() if name is None else name, **attributes)


def scalar(name: str, kind: int = TensorProto.INT64, shape: Any = ()) -> onnx.ValueInfoProto:
    """The declaration of a tensor."""
    return helper.make_tensor_value_info(name, kind, shape)


def _value(value: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value, FLOAT, None) if isinstance(value, str) else value
