"""onnx's own reference evaluator, looked at node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.unit.capture.onnx.told import FLOAT, Told, model, node, saved
from whynan.capture.onnx.arrays import same_bits
from whynan.capture.onnx.engine import EngineSettings, Outcome, run
from whynan.capture.onnx.execution import RunError
from whynan.records import Note

X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


def ran(proto: onnx.ModelProto, folder: Path, feeds: dict[str, Any]) -> tuple[Told, Outcome]:
    told = Told(again=True)
    return told, run(EngineSettings(saved(proto, folder), engine="reference"), feeds, told)


def test_every_value_is_the_evaluators(tmp_path: Path) -> None:
    nodes = [node("Softmax", "x", "s", axis=-1), node("Log", "s", "l"), node("MatMul", "l w", "y")]
    proto = model(nodes, ["x"], ["y"], {"w": X.T.copy()})
    told, outcome = ran(proto, tmp_path, {"x": X})
    expected: Any = ReferenceEvaluator(proto).run(None, {"x": X}, intermediate=True)
    assert told.order == ["enters x", "Softmax softmax", "Log log", "enters w", "MatMul matmul", "leaves y"]
    assert all(same_bits(value, expected[name]) for name, value in told.values.items())
    assert outcome.bit_equal is True
    assert all(told.same_alone)
    assert (outcome.nodes, outcome.segments, outcome.placement) == (3, 1, {})


def test_float16_overflows_where_it_is_computed(tmp_path: Path) -> None:
    nodes = [node("Mul", "x big", "a", "one"), node("Mul", "a small", "b", "two")]
    weights = {"big": np.float16(30000), "small": np.float16(0.0001)}
    half = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, None) for n in "xb"]
    told, _ = ran(model(nodes, half[:1], half[1:], weights), tmp_path, {"x": np.array([3], np.float16)})
    assert told.counted["a"].n_posinf == 1


def test_what_ran_before_a_node_failed_is_told(tmp_path: Path) -> None:
    nodes = [node("Log", "x", "l"), node("Reshape", "l shape", "y")]
    proto = model(nodes, ["x"], ["y"], {"shape": np.array([3, 3])})
    told = Told()
    with pytest.raises(RunError) as error:
        run(EngineSettings(saved(proto, tmp_path), engine="reference"), {"x": X}, told)
    assert error.value.nodes == 1
    assert [n.op for n in told.nodes] == ["Log"]


def test_an_operator_that_it_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="BiasGelu"):
        proto = model([node("BiasGelu", "x x", "y", domain="com.microsoft")], ["x"], ["y"])
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        run(EngineSettings(saved(proto, tmp_path), engine="reference"), {"x": X}, Told())


def test_the_call_of_a_function_is_one_node(tmp_path: Path) -> None:
    then = helper.make_graph([node("Sqrt", "b", "t")], "then", [], [helper.make_tensor_value_info("t", FLOAT, None)])
    other = helper.make_graph([node("Neg", "b", "e")], "else", [], [helper.make_tensor_value_info("e", FLOAT, None)])
    inner = [node("Add", "a a", "b"), node("If", "yes", "c", then_branch=then, else_branch=other)]
    proto = model(
        [node("Own", "x yes", "d", domain="own"), node("Log", "d", "y")], ["x"], ["y"], {"yes": np.array(True)}
    )
    proto.opset_import.append(helper.make_opsetid("own", 1))
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("own", "Own", ["a", "yes"], ["c"], inner, opsets))
    told, outcome = ran(proto, tmp_path, {"x": X})
    assert [n.op for n in told.nodes] == ["Own", "Log"]
    assert told.bodies == []
    assert outcome.bit_equal is True


def test_what_is_random_is_no_difference(tmp_path: Path) -> None:
    proto = model([node("RandomNormal", "", "y", shape=[4])], [], ["y"])
    told = Told()
    outcome = run(EngineSettings(saved(proto, tmp_path), engine="reference"), {}, told)
    assert outcome.bit_equal is None
    assert outcome.why == Note.create("runs_differ", engine="evaluator")


def test_a_node_alone_is_not_told_of(tmp_path: Path) -> None:
    told, _ = ran(model([node("Log", "x", "y")], ["x"], ["y"]), tmp_path, {"x": X})
    assert told.alone is not None
    count = len(told.nodes)
    with np.errstate(all="ignore"):
        assert same_bits(told.alone(told.nodes[0], [X * 2])[0], np.log(X * 2))
    assert len(told.nodes) == count
    with pytest.raises(RuntimeError):
        told.alone(told.nodes[0], [np.array(["text"], object)])
