"""The models that inference is timed on: the structures of onnx's light models and an encoder, with random weights.

The light models' own weights are constants that an engine folds into nearly nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
WIDTH, HEADS, INNER, LAYERS = 256, 8, 1024, 12


@dataclass(frozen=True)
class Model:
    """A model's name, how it is made, and the shape of its one input."""

    name: str
    make: Callable[[], onnx.ModelProto]
    shape: tuple[int, ...]

    def feed(self) -> Any:
        """An input, the same in every process."""
        return np.random.default_rng(1).standard_normal(self.shape).astype(np.float32)


def light(name: str) -> onnx.ModelProto:
    """A light model whose constant weights are random ones, which keep the activations in range."""
    proto = onnx.load(LIGHT / f"light_{name}.onnx")
    rng = np.random.default_rng(0)
    graph = proto.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    filled = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    consumers = {name: node for node in graph.node for name in node.input}
    for node in filled:
        shape = [int(size) for size in shapes[node.input[0]]]
        graph.initializer.append(numpy_helper.from_array(_weight(rng, shape, node, consumers), node.output[0]))
        graph.node.remove(node)
    read = {name for node in graph.node for name in node.input}
    for group in (graph.initializer, graph.input):
        for entry in [entry for entry in group if entry.name not in read]:
            group.remove(entry)
    constants = {tensor.name for tensor in graph.initializer}
    for entry in [entry for entry in graph.input if entry.name in constants]:
        graph.input.remove(entry)
    proto.ir_version = 8
    del graph.value_info[:]
    return shape_inference.infer_shapes(proto)


def _weight(rng: Any, shape: list[int], node: Any, consumers: dict[str, Any]) -> Any:
    reader = consumers[node.output[0]]
    if reader.op_type == "BatchNormalization":
        # scale, bias, mean, variance: of a network at rest, no number far from 1
        place = list(reader.input).index(node.output[0])
        value = rng.standard_normal(shape) * 0.1 + (1.0 if place in (1, 4) else 0.0)
        return np.abs(value).astype(np.float32) if place == 4 else value.astype(np.float32)
    fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    scale = np.sqrt(2.0 / fan) if len(shape) > 1 else 0.1
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def encoder() -> onnx.ModelProto:
    """An encoder of twelve layers, as an exporter writes one: attention by single operations, GELU by Erf."""
    made = _Writer()
    value = "x"
    for layer in range(LAYERS):
        value = made.layer(f"layer{layer}", value)
    made.node("Identity", [value], "y")
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "length", WIDTH]) for name in "xy"]
    graph = helper.make_graph(made.nodes, "encoder", io[:1], io[1:], made.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._rng = np.random.default_rng(0)

    def node(self, op: str, inputs: list[str], output: str, **how: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"/{output}/{op}", **how))
        return output

    def weight(self, name: str, array: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def linear(self, name: str, value: str, size: int, out: int) -> str:
        weight = self.weight(f"{name}.weight", (self._rng.standard_normal((size, out)) / size**0.5).astype(np.float32))
        product = self.node("MatMul", [value, weight], f"{name}.product")
        return self.node("Add", [product, self.weight(f"{name}.bias", np.zeros(out, np.float32))], f"{name}.sum")

    def norm(self, name: str, value: str) -> str:
        scale = self.weight(f"{name}.scale", np.ones(WIDTH, np.float32))
        bias = self.weight(f"{name}.bias", np.zeros(WIDTH, np.float32))
        return self.node("LayerNormalization", [value, scale, bias], f"{name}.out", axis=-1)

    def heads(self, name: str, value: str, order: list[int]) -> str:
        shape = self.weight(f"{name}.shape", np.array([0, 0, HEADS, WIDTH // HEADS]))
        split = self.node("Reshape", [value, shape], f"{name}.split")
        return self.node("Transpose", [split], f"{name}.heads", perm=order)

    def layer(self, name: str, value: str) -> str:
        query, key, content = (self.linear(f"{name}.{part}", value, WIDTH, WIDTH) for part in ("q", "k", "v"))
        query = self.heads(f"{name}.q", query, [0, 2, 1, 3])
        key = self.heads(f"{name}.k", key, [0, 2, 3, 1])
        content = self.heads(f"{name}.v", content, [0, 2, 1, 3])
        scores = self.node("MatMul", [query, key], f"{name}.scores")
        root = self.weight(f"{name}.root", np.float32((WIDTH // HEADS) ** 0.5))
        scaled = self.node("Div", [scores, root], f"{name}.scaled")
        weights = self.node("Softmax", [scaled], f"{name}.attention", axis=-1)
        mixed = self.node("MatMul", [weights, content], f"{name}.mixed")
        back = self.node("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
        flat = self.weight(f"{name}.flat", np.array([0, 0, WIDTH]))
        joined = self.node("Reshape", [back, flat], f"{name}.joined")
        attended = self.linear(f"{name}.o", joined, WIDTH, WIDTH)
        first = self.norm(f"{name}.norm1", self.node("Add", [value, attended], f"{name}.residual1"))
        inner = self.gelu(f"{name}.gelu", self.linear(f"{name}.up", first, WIDTH, INNER))
        down = self.linear(f"{name}.down", inner, INNER, WIDTH)
        return self.norm(f"{name}.norm2", self.node("Add", [first, down], f"{name}.residual2"))

    def gelu(self, name: str, value: str) -> str:
        root = self.weight(f"{name}.root2", np.float32(2**0.5))
        one, half = self.weight(f"{name}.one", np.float32(1)), self.weight(f"{name}.half", np.float32(0.5))
        error = self.node("Erf", [self.node("Div", [value, root], f"{name}.scaled")], f"{name}.erf")
        both = self.node("Mul", [value, self.node("Add", [error, one], f"{name}.plus")], f"{name}.both")
        return self.node("Mul", [both, half], f"{name}.out")


_IMAGE = (1, 3, 224, 224)
MODELS = (
    Model("SqueezeNet", lambda: light("squeezenet"), _IMAGE),
    Model("ResNet-50", lambda: light("resnet50"), _IMAGE),
    Model("DenseNet-121", lambda: light("densenet121"), _IMAGE),
    Model("VGG-19", lambda: light("vgg19"), _IMAGE),
    Model("encoder of 12 layers, 1 x 128", encoder, (1, 128, WIDTH)),
    Model("encoder of 12 layers, 4 x 512", encoder, (4, 512, WIDTH)),
)
