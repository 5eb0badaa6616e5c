"""Small ONNX models for comparisons, and sides of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from whynan.capture.onnx.sessions import EngineSettings
from whynan.compare.sides.onnx import OnnxSide
from whynan.compare.sides.values import ValueStore
from whynan.compare.stretches import SideRun

Weights = Mapping[str, Any]


def model(
    nodes: list[onnx.NodeProto],
    weights: Weights,
    shape: list[int],
    outputs: tuple[str, ...] = ("y",),
    opset: int = 20,
) -> onnx.ModelProto:
    """A model with one input ``x`` of float32."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def mlp(width: int = 16, *, epsilon: float = 1e-5, scale: float = 1.0) -> onnx.ModelProto:
    """Two layers with a normalisation between them."""
    draws = np.random.default_rng(0)
    weights = {
        "w1": draws.normal(size=(width, 32)).astype(np.float32) / 4,
        "gain": np.ones(32, np.float32),
        "shift": np.zeros(32, np.float32),
        "w2": (draws.normal(size=(32, 8)) * scale).astype(np.float32) / 6,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["hidden"], name="first"),
        helper.make_node("LayerNormalization", ["hidden", "gain", "shift"], ["normal"], name="norm", epsilon=epsilon),
        helper.make_node("Gelu", ["normal"], ["active"], name="gelu"),
        helper.make_node("MatMul", ["active", "w2"], ["logits"], name="second"),
        helper.make_node("Softmax", ["logits"], ["y"], name="softmax"),
    ]
    return model(nodes, weights, [4, width])


def side(made: onnx.ModelProto, label: str = "model") -> OnnxSide:
    """A model as a side, as it is written."""
    return OnnxSide(label, made, Path(), EngineSettings(path=label), made)


def ran(made: onnx.ModelProto, x: Any) -> SideRun:
    """A model that has run on one input."""
    values = ValueStore(1 << 30)
    opened = side(made)
    opened.run({"x": np.asarray(x, np.float32)}, values)
    return SideRun(opened, values)


def numbers(*shape: int, seed: int = 0) -> Any:
    """Normal numbers of float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def renamed(made: onnx.ModelProto) -> onnx.ModelProto:
    """The model with other names for all but its inputs and outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(made)
    kept = {value.name for value in (*copy.graph.input, *copy.graph.output)}
    names: dict[str, str] = {}

    def other(name: str) -> str:
        return name if not name or name in kept else names.setdefault(name, f"t{len(names)}")

    for tensor in copy.graph.initializer:
        tensor.name = other(tensor.name)
    for number, node in enumerate(copy.graph.node):
        node.name = f"n{number}"
        node.input[:] = [other(name) for name in node.input]
        node.output[:] = [other(name) for name in node.output]
    del copy.graph.value_info[:]
    return copy
