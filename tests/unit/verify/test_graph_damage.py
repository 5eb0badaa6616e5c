"""A repair of what ended in wrong finite numbers is judged by what these should have been."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from tests.defects import N, norm_in_fp16
from tests.findings import report_of
from whynan.fixes.onnx import GraphCandidate, candidates
from whynan.verify.onnx_program import judge_graph
from whynan.verify.onnx_program.run import Engines

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from whynan.records import FixVerdict

DEFECT = norm_in_fp16()


def _judged(repaired: onnx.ModelProto, feeds: Any = None, kind: Any = "reformulation") -> FixVerdict:
    engines = Engines("reference")
    return judge_graph(DEFECT.model, repaired, feeds or [DEFECT.failing], kind=kind, engines=engines, damaging=True)


@pytest.mark.process
def test_the_nodes_that_do_not_fit_are_computed_in_float32() -> None:
    (finding,) = report_of(DEFECT.model, DEFECT.failing, DEFECT.engine).damaging
    made = [one for one in candidates(DEFECT.model, finding, ()) if isinstance(one, GraphCandidate)]
    verdicts = {one.title: _judged(one.model, [DEFECT.failing, DEFECT.healthy]) for one in made}
    verified = [title for title, verdict in verdicts.items() if verdict.status == "verified"]
    assert verified[0] == "4 nodes in float32: Pow square, ReduceMean mean, Add add, Sqrt root", verdicts


WRONG = {
    "the infinity is made the greatest number": (
        [N("Clip", ["q", "least", "most"], ["c"]), N("ReduceMean", ["c", "axes"], ["m"], keepdims=1)],
        {"least": np.float16(-65504), "most": np.float16(65504)},
    ),
    "only the square is computed in float32": (
        [
            N("Cast", ["q32"], ["q16"], to=TensorProto.FLOAT16),
            N("ReduceMean", ["q16", "axes"], ["m"], keepdims=1),
        ],
        {},
    ),
    "the mean is a constant": ([N("ReduceMax", ["x", "axes"], ["m"], keepdims=1)], {}),
}


def _other(nodes: list[Any], held: dict[str, Any]) -> onnx.ModelProto:
    """The model with other nodes for the mean of the squares."""
    made = onnx.ModelProto()
    made.CopyFrom(DEFECT.model)
    before = [node for node in made.graph.node if node.name == "square"]
    after = [node for node in made.graph.node if node.name not in ("square", "mean")]
    wide = [N("Cast", ["x"], ["x32"], to=TensorProto.FLOAT), N("Mul", ["x32", "x32"], ["q32"])]
    del made.graph.node[:]
    made.graph.node.extend([*before, *wide, *nodes, *after])
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in held.items())
    return made


@pytest.mark.parametrize("name", WRONG)
def test_what_stays_wrong_is_rejected(name: str, snapshot: SnapshotAssertion) -> None:
    verdict = _judged(_other(*WRONG[name]))
    assert verdict.status == "rejected"
    assert verdict.why == snapshot


def test_where_nothing_was_wrong_nothing_is_verified(snapshot: SnapshotAssertion) -> None:
    right = _other([N("ReduceMean", ["q32", "axes"], ["m32"]), N("Cast", ["m32"], ["m"], to=TensorProto.FLOAT16)], {})
    verdict = _judged(right, [DEFECT.healthy])
    assert (verdict.status, verdict.why) == snapshot


def test_what_becomes_bad_is_rejected(snapshot: SnapshotAssertion) -> None:
    verdict = _judged(_other([N("Sub", ["q", "q"], ["m"])], {}))
    assert (verdict.status, verdict.why) == snapshot
