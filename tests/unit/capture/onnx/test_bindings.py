"""The memory that the values of a segment share, and that those of the next are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.unit.capture.onnx.told import Told, model, node, saved
from whynan.capture.onnx.arrays import same_bits
from whynan.capture.onnx.engine import EngineSettings, open_engine, run
from whynan.capture.onnx.execution import Node, Value
from whynan.capture.onnx.statistics import counters

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 16, 40, 40)).astype(np.float32)


def moving() -> onnx.ModelProto:
    """Every operator that only moves elements, each between two that compute."""
    nodes = [
        node("Neg", "x", "n", "neg"),
        node("Abs", "x", "a", "abs"),
        node("Concat", "n a x", "joined", "concat", axis=1),
        node("Transpose", "joined", "turned", "transpose", perm=[3, 0, 2, 1]),
        node("Transpose", "turned", "back", "transpose2"),
        node("Reshape", "back by_shape", "shaped", "reshape"),
        node("Squeeze", "shaped first", "fewer", "squeeze"),
        node("Unsqueeze", "fewer ends", "more", "unsqueeze"),
        node("Flatten", "more", "flat", "flatten", axis=2),
        node("Neg", "flat", "m", "neg2"),
        node("Flatten", "m", "row", "flatten2", axis=-1),
        node("Concat", "row m", "y", "concat2", axis=-1),
        node("Reshape", "m whole", "line", "reshape2"),
        node("ReduceSum", "line", "s", "sum"),
    ]
    weights = {
        "by_shape": np.array([1, 0, -1]),
        "first": np.array([0]),
        "ends": np.array([0, -1]),
        "whole": np.array([-1]),
    }
    return model(nodes, ["x"], ["y", "s"], weights)


def oracle(proto: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """Every value, as a session returns it in which all are outputs and nothing is optimised."""
    every = onnx.ModelProto()
    every.CopyFrom(proto)
    names = [name for n in proto.graph.node for name in n.output]
    del every.graph.output[:]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(every.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, feeds), strict=True))


@dataclass
class Compared(Told):
    """Compares what nodes are told to have read with what was told to have been written."""

    differently: list[str] = field(default_factory=list)

    def on_node(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        super().on_node(node, inputs, outputs)
        for name, value in zip(node.inputs, inputs, strict=True):
            if name in self.values and not same_bits(value, self.values[name]):
                self.differently.append(f"{node.op} {name}")


def compare(told: Compared, expected: dict[str, Any]) -> None:
    assert told.differently == []
    assert set(told.values) == set(expected)
    for name, value in expected.items():
        assert same_bits(told.values[name], value), name
        assert told.counted[name] == counters(value), name


@pytest.mark.parametrize("segment", [128 << 20, 1 << 21, 1])
def test_every_value_is_told_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment: int) -> None:
    monkeypatch.setattr("whynan.capture.onnx.optimised.RECYCLED", segment)
    proto = moving()
    with open_engine(EngineSettings(saved(proto, tmp_path), graph="original")) as engine:
        for scale in (1, 3):
            told = Compared(again=True)
            outcome = engine.run({"x": X * scale}, told)
            assert outcome.bit_equal is True
            assert all(told.same_alone)
            compare(told, oracle(proto, {"x": X * scale}))
            assert (outcome.segments > 1) == (segment < 1 << 27)


def test_other_shapes_are_other_memory(tmp_path: Path) -> None:
    proto = moving()
    with open_engine(EngineSettings(saved(proto, tmp_path), graph="original")) as engine:
        for rows in (2, 1, 5, 2):
            x = RNG.standard_normal((rows, 16, 40, 40)).astype(np.float32)
            told = Compared()
            assert engine.run({"x": x}, told).bit_equal is True
            compare(told, oracle(proto, {"x": x}))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_bad_is_seen_where_it_was_moved_to(tmp_path: Path, bad: float) -> None:
    x, proto = X.copy(), moving()
    x[1, 3, 5, 7] = bad
    told = Compared()
    run(EngineSettings(saved(proto, tmp_path), graph="original"), {"x": x}, told)
    compare(told, oracle(proto, {"x": x}))
    assert [told.counted[name].bad for name in ("joined", "back", "flat", "line", "y")] == [3, 3, 3, 3, 6]


def test_convolutions_share_memory_with_what_reorders_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In segments of one node or few, a value in blocks is read after its segment is over."""
    weights = {
        f"w{i}": (RNG.standard_normal(shape) * 0.2).astype(np.float32)
        for i, shape in enumerate([(32, 16, 3, 3), (32, 32, 3, 3), (32, 64, 3, 3)])
    }
    nodes = [
        node("Conv", "x w0", "c0", "zero", pads=[1] * 4),
        node("Conv", "c0 w1", "c1", "one", pads=[1] * 4),
        node("Concat", "c0 c1", "both", "concat", axis=1),
        node("Softplus", "both", "soft", "softplus"),
        node("Erf", "soft", "e", "erf"),
        node("Conv", "e w2", "c2", "two", pads=[1] * 4),
        node("Transpose", "c2", "turned", "transpose", perm=[0, 2, 3, 1]),
        node("Erf", "turned", "y", "erf2"),
    ]
    path = saved(model(nodes, ["x"], ["y"], weights), tmp_path)
    found: list[Compared] = []
    for segment in (1, 1 << 20, 128 << 20):
        monkeypatch.setattr("whynan.capture.onnx.optimised.RECYCLED", segment)
        with open_engine(EngineSettings(path)) as engine:
            for scale in (2, 1):
                told = Compared(again=True)
                assert engine.run({"x": X * scale}, told).bit_equal is True
                assert told.differently == []
                assert all(told.same_alone)
            found.append(told)
    for other in found[1:]:
        assert other.counted == found[0].counted
        assert all(same_bits(value, found[0].values[name]) for name, value in other.values.items())
        assert other.counted == {name: counters(value) for name, value in other.values.items()}
