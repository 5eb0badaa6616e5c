"""Silent damage in ONNX models: guards and casts, what is found of them, and what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import whynan
from tests.onnx_doubles import NoSites
from tests.onnx_engine import run
from whynan.capture.onnx.provenance.silent import SilentDamageObserver
from whynan.capture.onnx.recorder import Recorder
from whynan.traces import Silent

READS = frozenset(("masks", "ranges"))
X = np.linspace(-2, 3, 50).astype(np.float32)


def model(*nodes: onnx.NodeProto, eps: float = 1e-6) -> onnx.ModelProto:
    """A graph from x to y, with a constant eps."""
    made = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    constant = numpy_helper.from_array(np.array(eps, np.float32), "eps")
    graph = helper.make_graph(list(nodes), "g", made[:1], made[1:], [constant])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def found(*nodes: onnx.NodeProto, x: np.ndarray = X, eps: float = 1e-6, reads: frozenset[str] = READS) -> list[Silent]:
    """What is found in such a graph."""
    looking = SilentDamageObserver(Recorder(), NoSites(), ranges=False, reads=reads)
    run(model(*nodes, eps=eps), {"x": x}, looking)
    return looking.trace().silent


def node(op: str, inputs: str, output: str, **more: int) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **more)


LESS, CHOSEN = node("Less", "x eps", "m"), node("Where", "m eps x", "y")


@pytest.mark.parametrize(
    "nodes",
    [
        (LESS, CHOSEN),
        (node("LessOrEqual", "x eps", "m"), CHOSEN),
        (node("Greater", "x eps", "m"), node("Where", "m x eps", "y")),
        (node("GreaterOrEqual", "x eps", "m"), node("Not", "m", "n"), node("Where", "n eps x", "y")),
        (node("Greater", "eps x", "m"), CHOSEN),
    ],
)
def test_a_guard_that_writes_over_negative_values(nodes: tuple[onnx.NodeProto, ...]) -> None:
    (silent,) = found(*nodes)
    assert (silent.damage.kind, silent.damage.concerned, silent.damage.total) == ("overwritten", 20, 50)
    assert silent.damage.numbers["worst"] == -2.0
    assert silent.element.operands[0].value == -2.0
    assert (silent.event.op, silent.event.phase) == ("Where", "inference")


@pytest.mark.parametrize(
    "nodes",
    [
        (node("Abs", "x", "a"), node("Less", "a eps", "m"), CHOSEN),
        (LESS, node("Neg", "x", "n"), node("Where", "m eps n", "y")),
        (node("Max", "x eps", "y"),),
        (node("Greater", "x eps", "m"), CHOSEN),
    ],
    ids=["the magnitude", "another value", "a floor", "cut off above"],
)
def test_what_is_no_such_guard(nodes: tuple[onnx.NodeProto, ...]) -> None:
    assert found(*nodes) == []


def test_a_guard_that_meets_no_negative_value() -> None:
    assert found(LESS, CHOSEN, x=np.abs(X)) == []


def test_a_large_constant_is_a_value_and_no_guard() -> None:
    assert found(LESS, CHOSEN, eps=0.5) == []


@pytest.mark.process
def test_a_cast_that_saturates(tmp_path: Path) -> None:
    nodes = (node("Cast", "x", "c", to=TensorProto.FLOAT8E4M3FN), node("Cast", "c", "y", to=TensorProto.FLOAT))
    onnx.save(model(*nodes), tmp_path / "model.onnx")
    (finding,) = whynan.explain(tmp_path / "model.onnx", X * 1000).damaging
    assert finding.rule == "WN710"
    assert (finding.element.value, finding.element.operands[0].value) == (-448.0, -2000.0)
    assert whynan.explain(tmp_path / "model.onnx", X * 100).verdict == "clean"


def test_nothing_is_looked_at_that_no_rule_reads() -> None:
    assert found(LESS, CHOSEN, reads=frozenset()) == []
