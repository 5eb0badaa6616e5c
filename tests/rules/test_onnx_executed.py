"""What the rules say of models as ONNX Runtime executes them: fused, written out, and computed in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from whynan.analysis import judge_births
from whynan.capture.onnx.engine import EngineSettings, open_engine
from whynan.capture.onnx.graph.sites import Sites
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder
from whynan.report.notes import sentences
from whynan.rules.catalogue import explain

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

    from whynan.records import Finding

HALF, SINGLE = np.float16, np.float32


@dataclass(frozen=True)
class Case:
    """Nodes, as ``y = Op a b``, on a row with which they break, and on one with which they do not."""

    rule: str
    op: str
    nodes: str
    bad: tuple[float, ...]
    good: tuple[float, ...]
    dtype: Any = HALF

    def __str__(self) -> str:
        return f"{self.rule} {self.nodes.partition(';')[0].split()[2]} {self.op} {np.dtype(self.dtype)}"


NUMBERS = {"one": 1.0, "two": 2.0, "eighth": 0.125}
CASES = [
    Case("WN203", "Exp", "y = Exp x", (20, 1), (2, 1)),
    Case("WN203", "Exp", "e = Exp x; y = Sub e one", (20, 1), (2, 1)),
    Case("WN117", "Reciprocal", "y = Reciprocal x", (6e-8, 1), (2, 1)),
    Case("WN701", "Mul", "s = Mul x x; y = Mul s two", (300, 1), (2, 1)),
    Case("WN501", "Sub", "y = Softmax x", (-np.inf, -np.inf), (-np.inf, 1)),
    Case("WN501", "Sub", "y = LogSoftmax x", (-np.inf, -np.inf), (-2, 1)),
    Case("WN106", "Mul", "s = Sigmoid x; y = Mul x s", (-np.inf, 1), (-2, 1)),
    Case("WN702", "FusedMatMul", "t = Transpose x; m = MatMul t x; y = Mul m eighth", (2e19, 2e19), (1, 2), SINGLE),
    Case("WN701", "FusedMatMul", "t = Transpose x; m = MatMul t x; y = Mul m two", (2e19, 2e19), (1, 2), SINGLE),
]


def model_of(case: Case, size: int) -> onnx.ModelProto:
    nodes: list[Any] = []
    for line in case.nodes.split("; "):
        output, _, op, *inputs = line.split()
        nodes.append(helper.make_node(op, inputs, [output], name=f"node_{output}"))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(case.dtype))
    graph = helper.make_graph(
        nodes,
        "executed",
        [helper.make_tensor_value_info("x", kind, (1, size))],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.array(v, case.dtype), n) for n, v in NUMBERS.items() if n in case.nodes],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def found(model: onnx.ModelProto, x: Any, folder: Path) -> tuple[list[Finding], tuple[str, ...]]:
    """What is found in a run of a model as it is executed, with what rules say of it, and the notes of the run."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    sites = Sites(model, None)
    births = BirthObserver(Recorder(), sites, ranges=False)
    births.before = sites.set_main_graph
    with open_engine(EngineSettings(str(path))) as engine:
        notes = sentences(engine.run({"x": x}, births).notes)
    return [explain(each) for each in judge_births(births.end()).escaped], notes


def told(case: Case, values: tuple[float, ...], folder: Path) -> list[Finding]:
    return found(model_of(case, len(values)), np.array([values], case.dtype), folder)[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_says_what_happened(case: Case, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    said = told(case, case.bad, tmp_path)[0]
    assert (said.rule, (said.op or "").rpartition(".")[2]) == (case.rule, case.op)
    assert {key: getattr(said, key) for key in ("node", "value", "made_of", "message", "explanation")} == snapshot


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_healthy_twin_has_no_finding(case: Case, tmp_path: Path) -> None:
    assert not told(case, case.good, tmp_path)


def test_a_cast_of_the_models_own_is_told_of(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"], name="node_e"),
        helper.make_node("Cast", ["e"], ["y"], name="node_y", to=TensorProto.FLOAT16),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, (2,))
    graph = helper.make_graph(nodes, "own", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    ((said,), _) = found(model, np.array([20, 1], SINGLE), tmp_path)
    assert (said.op, said.node, said.rule) == ("Cast", "node_y", "WN701")


def test_what_becomes_finite_again_is_no_birth(tmp_path: Path) -> None:
    model = model_of(Case("", "", "e = Exp x; y = Log e", (), ()), 2)
    findings, notes = found(model, np.array([[20, 1]], HALF), tmp_path)
    assert not findings
    assert any("e would overflow in float16" in note for note in notes)
