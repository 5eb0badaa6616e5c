"""Values that ONNX Runtime keeps in blocks of channels are looked at as they are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.unit.capture.onnx.told import Told, model, node, saved
from whynan.capture.onnx.engine import EngineSettings, run
from whynan.capture.onnx.taps import NCHWC
from whynan.capture.onnx.values import same_bits

RNG = np.random.default_rng(0)


def weight(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.2).astype(np.float32)


def network(channels: int) -> onnx.ModelProto:
    """Convolutions, a pooling, a sum, a concatenation and activations, all of which may be in blocks."""
    nodes = [
        node("Conv", "x w1 b1", "c1", "one", pads=[1] * 4),
        node("Relu", "c1", "r1", "relu"),
        node("Conv", "r1 w2", "c2", "two", pads=[1] * 4),
        node("Sigmoid", "c2", "s2", "sigmoid"),
        node("Conv", "s2 w3", "c3", "three", pads=[1] * 4),
        node("Add", "c3 s2", "sum", "add"),
        node("Concat", "sum s2", "both", "concat", axis=1),
        node("MaxPool", "both", "pooled", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "pooled", "mean", "mean"),
        node("Flatten", "mean", "y", "flatten"),
    ]
    weights = {
        "w1": weight(channels, 3, 3, 3),
        "b1": weight(channels),
        "w2": weight(channels, channels, 3, 3),
        "w3": weight(channels, channels, 3, 3),
    }
    return model(nodes, ["x"], ["y"], weights)


@pytest.mark.parametrize("channels", [12, 16, 20, 32, 48])
@pytest.mark.parametrize("memory", [None, 1], ids=["whole", "cut"])
def test_blocks_are_turned_back(tmp_path: Path, channels: int, memory: int | None) -> None:
    path = saved(network(channels), tmp_path)
    feeds = {"x": RNG.standard_normal((2, 3, 12, 12)).astype(np.float32)}
    told, original = Told(again=True), Told()
    outcome = run(EngineSettings(path, memory=memory), feeds, told)
    run(EngineSettings(path, graph="original"), feeds, original)
    blocked = [n for n in told.begun if n.domain == NCHWC]
    if not blocked:
        pytest.skip("this processor has no layout in blocks")
    assert outcome.bit_equal is True
    assert outcome.notes == ()
    assert all(told.same_alone)
    compared = 0
    for n in told.nodes:
        value: Any = told.values[n.outputs[0]]
        # a node in blocks is called after the value that it had before the activation that it took in
        name = n.name.removesuffix("_nchwc") if n.domain == NCHWC else n.outputs[0]
        name = {"c1": "r1"}.get(name, name)
        if name in original.values:
            expected: Any = original.values[name]
            assert value.shape == expected.shape
            assert np.allclose(value, expected, atol=1e-5)
            compared += 1
    assert compared >= 3


def test_a_bad_element_keeps_its_place(tmp_path: Path) -> None:
    path = saved(network(16), tmp_path)
    x = RNG.standard_normal((1, 3, 12, 12)).astype(np.float32)
    x[0, 1, 5, 7] = np.nan
    told, original = Told(), Told()
    run(EngineSettings(path), {"x": x}, told)
    run(EngineSettings(path, graph="original"), {"x": x}, original)
    first: Any = told.values[told.nodes[0].outputs[0]]
    expected: Any = original.values["c1"]
    # what Relu makes of NaN is the processor's own affair
    assert np.isnan(expected).sum() == 9 * 16
    if told.nodes[0].op == "Conv" and np.isnan(first).any():
        assert same_bits(np.isnan(first), np.isnan(expected))


def test_nothing_but_blocks_is_turned(tmp_path: Path) -> None:
    """Two convolutions, without any value in five dimensions."""
    nodes = [node("Conv", "x w1", "c1", "one"), node("Relu", "c1", "r1", "relu"), node("Conv", "r1 w2", "y", "two")]
    proto = model(nodes, ["x"], ["y"], {"w1": weight(32, 3, 3, 3), "w2": weight(32, 32, 3, 3)})
    told = Told(again=True)
    outcome = run(EngineSettings(saved(proto, tmp_path)), {"x": weight(1, 3, 8, 8)}, told)
    assert outcome.bit_equal is True
    assert outcome.notes == ()
    assert all(told.same_alone)
    assert [np.asarray(value).shape[1] for value in told.values.values()] == [32] * len(told.values)
