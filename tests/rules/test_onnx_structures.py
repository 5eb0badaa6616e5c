"""What the rules say of expressions in ONNX models: the same as of those in PyTorch, beside healthy twins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

from tests.rules.onnx_models import findings
from whynan.rules.catalogue import explain

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from whynan.analysis import Findings


@dataclass(frozen=True)
class Case:
    """Nodes, as ``y = Op a b``, on values with which they break, and on values with which they do not."""

    rule: str
    nodes: str
    bad: tuple[float, ...]
    good: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.rule} {self.nodes.split()[2]}"


NUMBERS = {
    "one": 1.0,
    "two": 2.0,
    "half": 0.5,
    "low": -np.inf,
    "least": np.finfo(np.float32).min,
    "cold": 2e-38,
    "axis": 1.0,
}
"""Constants of the models, by the names that the nodes call them by."""
CASES = [
    Case("WN206", "p = Softmax x; y = Log p", (200, 0), (1, 0)),
    Case("WN207", "p = Sigmoid x; y = Log p", (-200, 0), (1, 0)),
    Case("WN208", "p = Sigmoid x; q = Sub one p; y = Log q", (50, 0), (1, 0)),
    Case("WN209", "t = Tanh x; s = Mul t t; q = Sub one s; y = Log q", (50, 0), (1, 0)),
    Case("WN109", "n = ReduceL2 x; y = Div x n", (0, 0), (1, 0)),
    Case("WN112", "a = ReduceMax x; b = ReduceMin x; u = Sub x b; v = Sub a b; y = Div u v", (3, 3), (1, 0)),
    Case("WN114", "a = ReduceMax x; d = Sub a x; y = Div d x", (0, 3), (1, 3)),
    Case("WN218", "s = Mul x x; m = ReduceSum s; y = Log m", (0, 0), (1, 0)),
    Case("WN115", "s = Sin x; y = Div s x", (0, 1), (1, 2)),
    Case("WN116", "t = CumSum x axis; e = Exp t; y = Div one e", (-50, -45), (-1, -2)),
    Case("WN117", "y = Reciprocal x", (1e-39, 1), (1, 2)),
    Case("WN210", "l = Log x; y = Mul x l", (0, 1), (1, 2)),
    Case("WN211", "e = Exp x; s = Add e one; y = Log s", (100, 0), (1, 0)),
    Case("WN212", "e = Exp x; s = ReduceSum e; y = Log s", (100, 0), (1, 0)),
    Case("WN212", "e = Exp x; s = ReduceSum e; y = Log s", (88.6, 88.6), (1, 0)),
    Case("WN213", "e = Exp x; s = Add one e; y = Div e s", (100, 0), (1, 0)),
    Case("WN214", "e = Exp x; n = Neg x; f = Exp n; a = Sub e f; b = Add e f; y = Div a b", (100, 0), (1, 0)),
    Case("WN215", "c = Cosh x; y = Log c", (100, 0), (1, 0)),
    Case("WN504", "p = Softmax x; l = LogSoftmax x; y = Mul p l", (1, -np.inf), (1, 0)),
    Case("WN504", "q = Identity x; p = Softmax q; l = Log p; y = Mul p l", (1, -np.inf), (1, 0)),
    Case("WN503", "q = Identity x; e = Exp q; s = ReduceSum e; y = Div e s", (-200, -300), (1, 0)),
    Case("WN119", "s = ReduceSum x; y = Div x s", (np.inf, 1), (1, 2)),
    Case("WN505", "w = Relu x; l = LogSoftmax x; y = Mul w l", (1, -np.inf), (1, 0)),
    Case("WN506", "w = Relu x; y = Mul w low", (0, 1), (1, 1)),
    Case("WN507", "a = Mul least x; b = Mul least x; s = Add a b; y = Softmax s", (1, 1), (1, 0)),
    Case("WN509", "s = Div x cold; y = Softmax s", (100, 0), (1e-3, 0)),
    Case("WN702", "t = Transpose x; m = MatMul x t; y = Mul m half", (2e19, 2e19), (1, 2)),
    Case("WN503", "e = Exp x; s = ReduceSum e; y = Div e s", (100, 0), (1, 0)),
    Case("WN201", "q = Sub one x; o = Div x q; y = Log o", (1, 0.5), (0.25, 0.5)),
    Case("WN102", "q = Sub two x; o = Div x q; y = Log o", (2, 0.5), (0.25, 0.5)),
    Case("WN102", "q = Sub one x; o = Div x q; y = Exp o", (1, 0.5), (0.25, 0.5)),
    Case("WN106", "s = Sigmoid x; y = Mul x s", (-np.inf, 1), (-200, 1)),
    Case("WN106", "r = Mul x half; e = Erf r; g = Add e one; y = Mul x g", (-np.inf, 1), (-200, 1)),
    Case("WN103", "n = Neg x; s = Sigmoid n; y = Mul x s", (np.inf, 1), (200, 1)),
    Case("WN103", "t = Relu x; s = Sigmoid t; c = Sub s half; y = Mul x c", (-np.inf, 1), (-200, 1)),
    Case(
        "WN106",
        "t = Sign x; w = Sub one t; p = Mul w x; s = Sigmoid x; l = Log s; y = Sub p l",
        (np.inf, 1),
        (200, 1),
    ),
    Case("WN103", "t = Sign x; w = Sub one t; p = Mul w x; s = Sigmoid x; y = Sub p s", (np.inf, 1), (200, 1)),
    Case("WN501", "m = ReduceMax x; d = Sub x m; e = Exp d; s = ReduceSum e; y = Div e s", (-np.inf, -np.inf), (1, 0)),
    Case(
        "WN501",
        "m = ReduceMax x; d = Sub x m; e = Exp d; s = ReduceSum e; l = Log s; y = Sub d l",
        (-np.inf, -np.inf),
        (1, 0),
    ),
    Case("WN104", "m = ReduceMax x; d = Sub x m; y = Exp d", (-np.inf, -np.inf), (1, 0)),
]


def found(case: Case, values: tuple[float, ...]) -> Findings:
    nodes: list[Any] = []
    for line in case.nodes.split("; "):
        output, _, op, *inputs = line.split()
        nodes.append(helper.make_node(op, inputs, [output], name=output))
    feeds = {"x": np.array([values], np.float32)}
    constants = {
        name: np.array(value, np.int64 if name == "axis" else np.float32)
        for name, value in NUMBERS.items()
        if name in case.nodes
    }
    return findings(nodes, {**feeds, **constants})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_says_what_happened(case: Case, snapshot: SnapshotAssertion) -> None:
    escaped = found(case, case.bad).escaped
    assert escaped
    said = explain(escaped[0])
    assert said.rule == case.rule
    assert {"message": said.message, "explanation": said.explanation} == snapshot


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_healthy_twin_has_no_finding(case: Case) -> None:
    assert not found(case, case.good).escaped
