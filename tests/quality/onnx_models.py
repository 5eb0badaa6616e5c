"""ONNX models with random weights, into which bad numbers are planted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.onnx_engine import model_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Feeds = dict[str, NDArray[np.float32]]
    Made = tuple[onnx.ModelProto, Feeds]

_LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
N = helper.make_node


def _light(name: str, image: str) -> Made:
    """One of onnx's models without weights, which are made at random: those of a convolution to keep the variance."""
    model = onnx.load(_LIGHT / f"light_{name}.onnx")
    random = np.random.default_rng(0)
    held = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    made: dict[str, Any] = {}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            made[node.output[0]] = tuple(int(s) for s in held[node.input[0]])
    shapes = {i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim) for i in model.graph.input}
    shapes |= {i.name: tuple(i.dims) for i in model.graph.initializer} | made
    weights: dict[str, Any] = {}
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            shape = shapes[node.input[1]]
            fan = int(np.prod(shape[1:])) or 1
            weights[node.input[1]] = random.normal(0, (1.5 / fan) ** 0.5, shape)
        elif node.op_type == "BatchNormalization":
            for name, low, high in zip(node.input[1:], (0.7, -0.2, -0.2, 0.7), (1.1, 0.2, 0.2, 1.3), strict=True):
                weights[name] = random.uniform(low, high, shapes[name])
    kept = [n for n in model.graph.node if n.op_type != "ConstantOfShape"]
    for name, shape in made.items():
        weights.setdefault(name, random.uniform(0.5, 1.0, shape))
    initializers = [i for i in model.graph.initializer if i.name not in weights]
    initializers += [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()]
    for i, node in enumerate(kept):
        node.name = node.name or f"node{i}"
    inputs = [i for i in model.graph.input if i.name == image]
    graph = helper.make_graph(kept, name, inputs, list(model.graph.output), initializers)
    whole = helper.make_model(graph, opset_imports=model.opset_import, ir_version=10)
    return whole, {image: random.normal(0, 1, shapes[image]).astype(np.float32)}


def resnet50() -> Made:
    return _light("resnet50", "gpu_0/data_0")


def densenet121() -> Made:
    return _light("densenet121", "data_0")


def transformer(layers: int = 2, d: int = 32, heads: int = 4, tokens: int = 6) -> Made:
    """An encoder with a mask, and its last token's logits."""
    random = np.random.default_rng(1)
    held: dict[str, Any] = {
        "mask": np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1),
        "scale": np.array((d // heads) ** -0.5, np.float32),
        "split": np.array([0, 0, heads, d // heads], np.int64),
        "join": np.array([0, 0, d], np.int64),
        "last": np.array(tokens - 1, np.int64),
    }
    nodes: list[Any] = []

    def weight(name: str, *shape: int) -> str:
        held[name] = random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
        return name

    def add(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(N(op, inputs, [output], name=f"{output}/{op}", **attributes))
        return output

    def linear(x: str, name: str, n_in: int, n_out: int) -> str:
        product = add("MatMul", [x, weight(f"{name}.weight", n_in, n_out)], f"{name}.product")
        return add("Add", [product, weight(f"{name}.bias", n_out)], name)

    def norm(x: str, name: str) -> str:
        held[f"{name}.scale"], held[f"{name}.shift"] = np.ones(d, np.float32), np.zeros(d, np.float32)
        return add("LayerNormalization", [x, f"{name}.scale", f"{name}.shift"], name, axis=-1)

    x = "x"
    for i in range(layers):
        normed = norm(x, f"{i}.norm1")
        parts = {}
        for part in ("q", "k", "v"):
            flat = add("Reshape", [linear(normed, f"{i}.{part}", d, d), "split"], f"{i}.{part}.heads")
            perm = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
            parts[part] = add("Transpose", [flat], f"{i}.{part}.turned", perm=perm)
        scores = add("Mul", [add("MatMul", [parts["q"], parts["k"]], f"{i}.qk"), "scale"], f"{i}.scores")
        share = add("Softmax", [add("Add", [scores, "mask"], f"{i}.masked")], f"{i}.share", axis=-1)
        mixed = add("Transpose", [add("MatMul", [share, parts["v"]], f"{i}.mixed")], f"{i}.back", perm=[0, 2, 1, 3])
        x = add("Add", [x, linear(add("Reshape", [mixed, "join"], f"{i}.joined"), f"{i}.out", d, d)], f"{i}.attended")
        hidden = linear(norm(x, f"{i}.norm2"), f"{i}.up", d, 2 * d)
        gate = add("Erf", [hidden], f"{i}.erf")
        x = add("Add", [x, linear(add("Mul", [hidden, gate], f"{i}.gelu"), f"{i}.down", 2 * d, d)], f"{i}.x")
    token = add("Gather", [norm(x, "norm"), "last"], "token", axis=1)
    linear(token, "logits", d, 10)
    feeds = {"x": random.normal(0, 1, (2, tokens, d)).astype(np.float32)}
    return model_of(nodes, feeds, ["logits"], held), feeds


def lstm(steps: int = 5, n: int = 6, hidden: int = 8) -> Made:
    """Two layers of LSTM, a mean over time, and a classifier with a maximum that only chooses."""
    random = np.random.default_rng(2)

    def weight(*shape: int) -> NDArray[np.float32]:
        return random.normal(0, 0.4, shape).astype(np.float32)

    held = {
        "w1": weight(1, 4 * hidden, n),
        "r1": weight(1, 4 * hidden, hidden),
        "b1": weight(1, 8 * hidden),
        "w2": weight(1, 4 * hidden, hidden),
        "r2": weight(1, 4 * hidden, hidden),
        "b2": weight(1, 8 * hidden),
        "head": weight(hidden, 4),
        "axis0": np.array([0], np.int64),
        "axis1": np.array([1], np.int64),
        "half": np.array(0.5, np.float32),
    }
    nodes = [
        N("Mul", ["x", "half"], ["halved"], name="halve"),
        N("LSTM", ["halved", "w1", "r1", "b1"], ["y1"], name="lstm1", hidden_size=hidden),
        N("Squeeze", ["y1", "axis1"], ["s1"], name="squeeze1"),
        N("Tanh", ["s1"], ["t1"], name="tanh"),
        N("LSTM", ["t1", "w2", "r2", "b2"], ["y2", "h2", "c2"], name="lstm2", hidden_size=hidden),
        N("Squeeze", ["y2", "axis1"], ["s2"], name="squeeze2"),
        N("ReduceMean", ["s2", "axis0"], ["mean"], name="mean", keepdims=0),
        N("Gemm", ["mean", "head"], ["logits"], name="head"),
        N("Softmax", ["logits"], ["p"], name="softmax", axis=-1),
        N("ReduceMax", ["p", "axis1"], ["best"], name="best", keepdims=0),
        N("Squeeze", ["c2", "axis0"], ["cell"], name="cell"),
    ]
    feeds = {"x": random.normal(0, 1, (steps, 3, n)).astype(np.float32)}
    return model_of(nodes, feeds, ["p", "best", "cell"], held), feeds


def looping(count: int = 4, n: int = 5) -> Made:
    """A Loop with a state, a collected output and an If within, and a Scan over what it has collected."""
    random = np.random.default_rng(3)
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    tensor = TensorProto.FLOAT
    info = helper.make_tensor_value_info
    up = helper.make_graph([N("Add", ["moved", "x"], ["up"], name="up")], "up", [], [info("up", tensor, None)])
    down = helper.make_graph(
        [N("Sub", ["moved", "x"], ["down"], name="down")], "down", [], [info("down", tensor, None)]
    )
    body = helper.make_graph(
        [
            N("MatMul", ["state", "w"], ["moved"], name="move"),
            N("Equal", ["i", "one"], ["first"], name="first"),
            N("If", ["first"], ["chosen"], name="choose", then_branch=up, else_branch=down),
            N("Tanh", ["chosen"], ["next"], name="tanh"),
            N("Mul", ["next", "half"], ["seen"], name="see"),
            N("Identity", ["going"], ["on"], name="on"),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []), info("state", tensor, [2, n])],
        [info("on", TensorProto.BOOL, []), info("next", tensor, [2, n]), info("seen", tensor, [2, n])],
    )
    step = helper.make_graph(
        [
            N("Add", ["total", "part"], ["sum"], name="accumulate"),
            N("Neg", ["sum"], ["minus"], name="negate"),
        ],
        "step",
        [info("total", tensor, [2, n]), info("part", tensor, [2, n])],
        [info("sum", tensor, [2, n]), info("minus", tensor, [2, n])],
    )
    nodes = [
        N("Mul", ["x", "half"], ["start"], name="start"),
        N("Loop", ["count", "true", "start"], ["last", "all"], name="loop", body=body),
        N("Scan", ["last", "all"], ["total_sum", "sums"], name="scan", body=step, num_scan_inputs=1),
        N("Slice", ["sums", "from", "to"], ["later"], name="later"),
        N("Exp", ["last"], ["y"], name="exp"),
    ]
    held = {
        "count": np.array(count, np.int64),
        "true": numpy_helper.to_array(true),
        "w": random.normal(0, 0.5, (n, n)).astype(np.float32),
        "half": np.array(0.5, np.float32),
        "one": np.array(1, np.int64),
        "from": np.array([1], np.int64),
        "to": np.array([count], np.int64),
    }
    feeds = {"x": random.normal(0, 1, (2, n)).astype(np.float32)}
    return model_of(nodes, feeds, ["y", "later", "total_sum"], held), feeds


MODELS: dict[str, Callable[[], Made]] = {
    "resnet50": resnet50,
    "densenet121": densenet121,
    "transformer": transformer,
    "lstm": lstm,
    "loop": looping,
}
