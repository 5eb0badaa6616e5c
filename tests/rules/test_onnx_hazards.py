"""What the rules say of births in ONNX nodes: each hazard as a model of one node, beside a healthy twin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

from tests.rules.onnx_models import findings
from whynan.rules.catalogue import explain

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from whynan.analysis import Findings

INF = np.inf
ATTENTION = np.ones((1, 1, 2, 4), np.float32)


def row(*values: float) -> Any:
    return np.array([values], np.float32)


def full(value: float, *shape: int) -> Any:
    return np.full(shape, value, np.float32)


@dataclass(frozen=True)
class Case:
    """One operator on values with which it breaks, and on values with which it does not."""

    rule: str
    op: str
    bad: tuple[Any, ...]
    good: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 18

    def __str__(self) -> str:
        return f"{self.op} {self.rule}"


AXIS = np.array([1], np.int64)
ONES = np.ones(3, np.float32)
CASES = [
    Case("WN101", "Div", (row(0), row(0)), (row(0), row(1))),
    Case("WN102", "Div", (row(1), row(0)), (row(1), row(2))),
    Case("WN102", "Mod", (row(1), row(0)), (row(1), row(2)), {"fmod": 1}),
    Case("WN102", "Pow", (row(0), row(-1)), (row(2), row(-1))),
    Case("WN102", "Reciprocal", (row(0),), (row(2),)),
    Case("WN103", "Mul", (row(0), row(INF)), (row(0), row(3e38))),
    Case("WN104", "Sub", (row(INF), row(INF)), (row(INF), row(1))),
    Case("WN104", "ReduceSum", (row(INF, -INF), AXIS), (row(INF, 1), AXIS)),
    Case("WN104", "LayerNormalization", (row(INF, 1, 2), ONES), (row(3, 1, 2), ONES)),
    Case("WN104", "LogSoftmax", (row(INF, 1),), (row(-INF, 1),)),
    Case("WN105", "MatMul", (row(INF, 1), full(0, 2, 1)), (row(INF, 1), full(1, 2, 1))),
    Case("WN105", "Conv", (full(INF, 1, 1, 3, 3), full(0, 1, 1, 3, 3)), (full(1, 1, 1, 3, 3), full(0, 1, 1, 3, 3))),
    Case("WN106", "Sin", (row(INF),), (row(3e38),)),
    Case("WN106", "Softsign", (row(INF),), (row(1e30),)),
    Case("WN106", "Gelu", (row(-INF),), (row(-50),), opset=20),
    Case("WN106", "HardSwish", (row(-INF),), (row(-50),)),
    Case("WN107", "LayerNormalization", (full(1, 1, 3), ONES), (row(1, 2, 3), ONES), {"epsilon": 0.0}),
    Case("WN201", "Log", (row(0),), (row(1e-45),)),
    Case("WN201", "ReduceLogSum", (full(0, 1, 3), AXIS), (full(1, 1, 3), AXIS)),
    Case("WN202", "Log", (row(-1),), (row(1),)),
    Case("WN203", "Exp", (row(100),), (row(80),)),
    Case("WN203", "Sinh", (row(100),), (row(80),)),
    Case("WN302", "Sqrt", (row(-1),), (row(0),)),
    Case("WN304", "Pow", (row(-2), row(0.3)), (row(-2), row(3))),
    Case("WN402", "Acos", (row(1.5),), (row(1),)),
    Case("WN402", "Atanh", (row(1),), (row(0.9),)),
    Case("WN501", "Softmax", (full(-INF, 1, 3),), (row(-INF, -INF, 0),)),
    Case(
        "WN602",
        "SoftmaxCrossEntropyLoss",
        (full(0, 2, 3), np.array([-100, -100])),
        (full(0, 2, 3), np.array([-100, 1])),
        {"ignore_index": -100},
    ),
    Case("WN701", "Mul", (row(1e30), row(1e30)), (row(1e30), row(1e3))),
    Case("WN701", "Add", (row(3e38), row(3e38)), (row(3e38), row(1e37))),
    Case("WN701", "Cast", (row(90000),), (row(65504),), {"to": 10}),
    Case("WN701", "MatMul", (full(1e30, 2, 3), full(1e30, 3, 2)), (full(1e10, 2, 3), full(1e10, 3, 2))),
    Case("WN701", "Gemm", (full(1e30, 2, 3), full(1e30, 3, 2)), (full(1e10, 2, 3), full(1e10, 3, 2))),
    Case(
        "WN701",
        "Einsum",
        (full(1e30, 2, 3), full(1e30, 3, 2)),
        (full(1e10, 2, 3), full(1e10, 3, 2)),
        {"equation": "ij,jk->ik"},
    ),
    Case("WN701", "ReduceMean", (full(3e38, 1, 3), AXIS), (full(1e38, 1, 3), AXIS)),
    Case("WN701", "ReduceL2", (full(1e30, 1, 3), AXIS), (full(1e10, 1, 3), AXIS)),
    Case("WN701", "LayerNormalization", (row(3e38, -3e38, 2), ONES), (row(3e18, -3e18, 2), ONES)),
    Case("WN701", "GlobalAveragePool", (full(3e38, 1, 1, 2, 2),), (full(1e37, 1, 1, 2, 2),)),
    Case(
        "WN701",
        "Attention",
        (ATTENTION * 1e30, ATTENTION * 1e30, ATTENTION),
        (ATTENTION, ATTENTION, ATTENTION),
        opset=23,
    ),
]


def found(case: Case, values: tuple[Any, ...]) -> Findings:
    names = [f"x{i}" for i in range(len(values))]
    node = helper.make_node(case.op, names, ["y"], name="node", **case.attributes)
    return findings([node], dict(zip(names, values, strict=True)), case.opset)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_says_what_happened(case: Case, snapshot: SnapshotAssertion) -> None:
    escaped = found(case, case.bad).escaped
    assert escaped
    said = explain(escaped[0])
    assert (said.rule, said.op, said.node, said.value) == (case.rule, case.op, "node", "y")
    assert {"message": said.message, "explanation": said.explanation} == snapshot


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_healthy_twin_has_no_finding(case: Case) -> None:
    assert not found(case, case.good).escaped
