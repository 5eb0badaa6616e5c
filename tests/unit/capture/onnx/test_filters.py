"""The weights of convolutions in blocks are told as the model has them, and by the name that it has for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.unit.capture.onnx.written_models import NoLines, nodes, optimised
from whynan.capture.onnx.execution import Node
from whynan.capture.onnx.filters import as_meant, in_model_order, is_blocked
from whynan.capture.onnx.layout import block_size
from whynan.capture.onnx.sites import Sites

pytestmark = pytest.mark.skipif(block_size() == 0, reason="this ONNX Runtime has no layout of blocks")

GEOMETRIES = {
    "whole blocks": (32, 64, 1),
    "filled up on both sides": (20, 12, 1),
    "few channels come in": (3, 32, 1),
    "one channel": (1, 5, 1),
    "each channel by itself": (32, 32, 32),
    "groups": (32, 64, 2),
}


def convolved(inward: int, out: int, groups: int, scale: float | None = None) -> onnx.ModelProto:
    """A convolution, perhaps multiplied by a constant, and what keeps it from being the output."""
    random = np.random.default_rng(0)
    held = {
        "w": random.standard_normal((out, inward // groups, 2, 3)).astype(np.float32),
        "b": random.standard_normal(out).astype(np.float32),
        "s": np.full((out, 1, 1), scale or 1, np.float32),
    }
    made = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", group=groups)]
    if scale is not None:
        made.append(helper.make_node("Mul", ["c", "s"], ["m"], "mul"))
    made.append(helper.make_node("Sin", [made[-1].output[0]], ["y"], "sin"))
    given = helper.make_tensor_value_info("x", 1, [1, inward, 6, 6])
    left = helper.make_tensor_value_info("y", 1, [1, out, 5, 4])
    read = {name for node in made for name in node.input}
    constants = [numpy_helper.from_array(value, name) for name, value in held.items() if name in read]
    graph = helper.make_graph(made, "g", [given], [left], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def constants(model: onnx.ModelProto) -> dict[str, Any]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def blocked(model: onnx.ModelProto) -> Node:
    (found,) = [node for node in nodes(model.graph) if is_blocked(node)]
    return found


@pytest.mark.parametrize("name", GEOMETRIES)
def test_weights_come_in_the_order_of_the_file(name: str, tmp_path: Path) -> None:
    inward, out, groups = GEOMETRIES[name]
    model = convolved(inward, out, groups)
    executed = optimised(model, tmp_path)
    node = blocked(executed)
    held, file = constants(executed), constants(model)
    given = np.zeros((1, inward, 6, 6), np.float32)
    _, weight, bias = as_meant(node, [given, *(held[value] for value in node.inputs[1:3])], out)
    for found, meant in ((weight, file["w"]), (bias, file["b"])):
        assert np.asarray(found).shape == meant.shape
        assert np.asarray(found).tobytes() == meant.tobytes()
    sites = Sites(model, executed, reading=NoLines())
    assert [sites.weight(node, position) for position in range(4)] == [None, "w", "b", None]


def test_weights_that_were_multiplied_have_no_name_of_the_file(tmp_path: Path) -> None:
    model = convolved(32, 32, 1, 3)
    executed = optimised(model, tmp_path)
    sites = Sites(model, executed, reading=NoLines())
    assert sites.weight(blocked(executed), 1) is None


def test_what_lies_in_no_such_blocks_is_not_known() -> None:
    weight = np.zeros((16, 16, 1, 1), np.float32)
    assert in_model_order(weight, (16, 16), 1, 8) is not None
    assert in_model_order(weight, (16, 16), 1, 0) is None
    assert in_model_order(weight[:9], (9, 16), 1, 8) is None
    assert in_model_order(weight[:, :12], (16, 12), 1, 8) is None
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain="com.microsoft.nchwc")
    given = np.zeros((1, 16, 1, 1), np.float32)
    told = Node(0, "", "Conv", node.domain, ("x", "w"), ("y",), node)
    assert as_meant(told, [given, weight], None) == [None, None]
    other = Node(0, "", "Conv", "", ("x", "w"), ("y",), node)
    assert as_meant(other, [given, weight], None) == [given, weight]
