"""Values in blocks of channels that are put in order only when somebody asks for their elements."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from whynan.capture.onnx.layout import NCHWC, Blocked, block_size, in_order
from whynan.capture.onnx.statistics import counters
from whynan.capture.onnx.values import opened_alone

pytestmark = pytest.mark.skipif(block_size() == 0, reason="this ONNX Runtime has no layout of blocks")


def reordered(value: np.ndarray) -> np.ndarray:
    """As ONNX Runtime puts a value in blocks."""
    values = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(value.shape))
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=NCHWC)
    graph = helper.make_graph([node], "blocks", [values], [onnx.ValueInfoProto(name="y")])
    return opened_alone(graph, NCHWC).run(None, {"x": value})[0]


@pytest.mark.parametrize("five", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 7), (3, 2, 1, 4)])
def test_elements_come_in_the_order_that_is_meant(shape: tuple[int, ...], five: bool) -> None:
    n, blocks, h, w = shape
    size = block_size()
    value = np.random.default_rng(0).standard_normal((n, blocks * size, h, w)).astype(np.float32)
    raw = reordered(value)
    laid = Blocked(raw.reshape(n, blocks, h, w, size) if five else raw, size)
    assert laid.shape == value.shape
    assert (laid.size, laid.nbytes, laid.dtype) == (value.size, value.nbytes, value.dtype)
    assert np.asarray(laid).tobytes() == value.tobytes()
    assert np.array(laid, copy=True).tobytes() == value.tobytes()
    assert np.asarray(laid, np.float64).dtype == np.float64


def test_counts_do_not_depend_on_the_order() -> None:
    size = block_size()
    value = np.random.default_rng(0).standard_normal((2, 3 * size, 5, 7)).astype(np.float32)
    value[0, 1, 2] = [np.nan, np.inf, -np.inf, 0.0, 1e-40, 1, 2]
    laid = Blocked(reordered(value), size)
    assert counters(laid) == counters(value)  # type: ignore[arg-type]


def test_what_is_in_order_stays() -> None:
    value = np.zeros(3, np.float32)
    assert in_order(value) is value
    assert in_order(None) is None
    size = block_size()
    laid = Blocked(np.zeros((1, size, 1, 1), np.float32), size)
    assert isinstance(in_order(laid), np.ndarray)  # type: ignore[arg-type]
