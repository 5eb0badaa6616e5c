"""Nodes and kernels in float64 give what numpy gives, and bodies are rewritten as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from torch.nn import functional as F

from tests.unit.compare.models import model, numbers, ran
from whynan.compare.sides.operations import UnavailableError


def exact(node: Any, weights: dict[str, Any], x: Any, opset: int = 20) -> Any:
    """The first output of one node in float64."""
    run = ran(model([node], weights, list(x.shape), tuple(node.output)[:1], opset), x)
    return run.side.exact(run.side.operations[0], {"x": x})[0]


def wide(value: Any) -> Any:
    return torch.from_numpy(np.asarray(value, np.float64))


@pytest.mark.parametrize("group", [1, 2])
def test_a_convolution_is_torchs(group: int) -> None:
    x, weight, bias = numbers(2, 4, 9, 8), numbers(6, 4 // group, 3, 2, seed=1), numbers(6, seed=2)
    node = helper.make_node(
        "Conv", ["x", "w", "b"], ["y"], strides=[2, 1], pads=[1, 0, 1, 0], dilations=[2, 1], group=group
    )
    wanted = F.conv2d(wide(x), wide(weight), wide(bias), (2, 1), (1, 0), (2, 1), group)
    assert np.allclose(exact(node, {"w": weight, "b": bias}, x), wanted.numpy(), rtol=1e-12)


def test_a_convolution_padded_to_the_same_size_is_the_engines() -> None:
    x, weight = numbers(1, 2, 7, 7), numbers(3, 2, 3, 3, seed=1)
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2])
    run = ran(model([node], {"w": weight}, [1, 2, 7, 7]), x)
    assert np.allclose(exact(node, {"w": weight}, x), run.values["y"], atol=1e-5)


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Tanh"])
def test_a_fused_product_is_the_engines(activation: str) -> None:
    x, weights = numbers(3, 5), {"w": numbers(4, 5, seed=1), "b": numbers(4, seed=2)}
    node = helper.make_node(
        "FusedGemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5, domain="com.microsoft", activation=activation
    )
    whole = model([node], weights, [3, 5])
    whole.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    run = ran(whole, x)
    found = run.side.exact(run.side.operations[0], {"x": x})[0]
    assert found.dtype == np.float64
    assert np.allclose(found, run.values["y"], atol=1e-6)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_a_recurrent_node_is_the_engines(kind: str, gates: int, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    weights = {
        "w": numbers(ways, gates * 5, 3, seed=1),
        "r": numbers(ways, gates * 5, 5, seed=2),
        "b": numbers(ways, 2 * gates * 5, seed=3),
    }
    node = helper.make_node(kind, ["x", "w", "r", "b"], ["y"], hidden_size=5, direction=direction)
    x = numbers(6, 2, 3)
    run = ran(model([node], weights, [6, 2, 3]), x)
    assert np.allclose(exact(node, weights, x), run.values["y"], atol=1e-5)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_exact_far_below_zero(approximate: str) -> None:
    x = np.float32([-8.0, -3.0, 0.5])
    found = exact(helper.make_node("Gelu", ["x"], ["y"], approximate=approximate), {}, x)
    assert np.allclose(
        found, F.gelu(wide(x), approximate=approximate).numpy(), rtol=1e-9 if approximate == "tanh" else 1
    )
    if approximate == "none":
        assert found[0] == pytest.approx(-8 * 6.220960574271786e-16, rel=1e-9)


def test_a_cast_is_no_rounding_in_float64() -> None:
    x = np.float32([1 / 3])
    found = exact(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16), {}, x)
    assert found.dtype == np.float64
    assert found[0] == x[0]


def test_a_body_is_rewritten_as_a_whole() -> None:
    branches = {
        name: helper.make_graph(
            [helper.make_node("Mul", ["x", "half"], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)],
            [helper.make_tensor("half", TensorProto.FLOAT, [], [factor])],
        )
        for name, factor in (("then_branch", 0.5), ("else_branch", 0.25))
    }
    node = helper.make_node("If", ["c"], ["y"], **branches)
    found = exact(node, {"c": np.array(True)}, np.float32([3.0]))
    assert (found.dtype, found.tolist()) == (np.float64, [1.5])


def test_what_no_engine_runs_in_float64_is_said() -> None:
    run = ran(model([helper.make_node("Relu", ["x"], ["y"])], {}, [2]), np.float32([0.2, 0.5]))
    with pytest.raises(UnavailableError, match="x is not known"):
        run.side.exact(run.side.operations[0], {})
