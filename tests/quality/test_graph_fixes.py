"""Repaired ONNX models run finite and keep what was healthy; wrong repairs of the same defects are rejected."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.defects import DEFECTS, Defect
from tests.findings import report_of
from tests.selection import sampled
from whynan.fixes.onnx import GraphCandidate, candidates
from whynan.fixes.onnx.edit import checker_error
from whynan.records import APPLICABLE
from whynan.verify.onnx_program import judge_graph
from whynan.verify.onnx_program.run import Engines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.quality.conftest import Tally
    from whynan.records import Finding, FixVerdict


@cache
def _defect(name: str) -> tuple[Defect, Finding]:
    defect = DEFECTS[name]()
    (finding,) = report_of(defect.model, defect.failing, defect.engine).findings
    return defect, finding


def _judged(defect: Defect, repaired: onnx.ModelProto, kind: Any) -> FixVerdict:
    engines = Engines(defect.engine)  # type: ignore[arg-type]
    return judge_graph(defect.model, repaired, [defect.failing, defect.healthy], kind=kind, engines=engines)


def _made(name: str) -> list[GraphCandidate]:
    defect, finding = _defect(name)
    return [one for one in candidates(defect.model, finding, defect.intents) if isinstance(one, GraphCandidate)]


@pytest.mark.parametrize("name", sampled(DEFECTS, 3))
def test_a_verified_fix_runs_finite_and_a_second_does_nothing(name: str, tally: Tally) -> None:
    defect, finding = _defect(name)
    verdicts = [(one, _judged(defect, one.model, one.kind)) for one in _made(name)]
    verified = [one for one, verdict in verdicts if verdict.status in APPLICABLE]
    tally.count("defects of ONNX models: a verified fix", int(bool(verified)), 1)
    assert verified, [(one.title, verdict) for one, verdict in verdicts]
    for one in verified:
        assert checker_error(one.model) is None
        for optimised in (False, True):
            opened = Engines(defect.engine).open_model(one.model, optimised=optimised)  # type: ignore[arg-type]
            for feeds in (defect.failing, defect.healthy):
                assert all(np.isfinite(value).all() for value in opened.run(feeds).values())
        again = candidates(one.model, finding, defect.intents)
        assert one.title not in {other.title for other in again}


def _sample(names: Iterable[str]) -> list[Any]:
    """All of them, of which every third is always run."""
    return [name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.full) for i, name in enumerate(names)]


def _constant(model: onnx.ModelProto, value: float) -> onnx.ModelProto:
    """The model with the first output set to a number, whatever goes in."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    output = made.graph.output[0].name
    for node in made.graph.node:
        node.output[:] = [f"{name}_before" if name == output else name for name in node.output]
        node.input[:] = [f"{name}_before" if name == output else name for name in node.input]
    dtype = helper.tensor_dtype_to_np_dtype(made.graph.output[0].type.tensor_type.elem_type)
    for name, held in (("nothing_at_all", 0), ("that_number", value)):
        made.graph.initializer.append(numpy_helper.from_array(np.array(held, dtype), name))
    made.graph.node.extend(
        [
            helper.make_node("Shape", [f"{output}_before"], ["its_shape"]),
            helper.make_node("Expand", ["that_number", "its_shape"], [output]),
        ]
    )
    return made


def _silenced(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what is no number, or no finite one, set to 0 at its output."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    output = made.graph.output[0].name
    for node in made.graph.node:
        node.output[:] = [f"{name}_before" if name == output else name for name in node.output]
        node.input[:] = [f"{name}_before" if name == output else name for name in node.input]
    dtype = helper.tensor_dtype_to_np_dtype(made.graph.output[0].type.tensor_type.elem_type)
    made.graph.initializer.append(numpy_helper.from_array(np.array(0, dtype), "nothing_at_all"))
    before = f"{output}_before"
    made.graph.node.extend(
        [
            helper.make_node("Sub", [before, before], ["difference"]),
            helper.make_node("Equal", ["difference", "nothing_at_all"], ["is_finite"]),
            helper.make_node("Where", ["is_finite", before, "nothing_at_all"], [output]),
        ]
    )
    return made


@pytest.mark.parametrize("name", _sample(DEFECTS))
def test_a_constant_is_rejected(name: str, tally: Tally) -> None:
    defect, _ = _defect(name)
    verdict = _judged(defect, _constant(defect.model, 1.0), "reformulation")
    tally.count("wrong repairs of ONNX models: not verified", int(verdict.status not in APPLICABLE), 1)
    # the oracle computes no bodies, and says so
    assert verdict.status == ("unverified" if name in ("in_branch", "in_loop") else "rejected"), verdict


UNDEFINED = "norm root_of_negative power_of_zero logarithm_of_zero mask_in_fp16 masked_softmax in_loop".split()
"""Where there is no true number: 0 is as good as another."""


@pytest.mark.parametrize("name", _sample(name for name in DEFECTS if name not in UNDEFINED))
def test_silence_is_rejected_where_there_is_a_true_number(name: str, tally: Tally) -> None:
    defect, _ = _defect(name)
    verdict = _judged(defect, _silenced(defect.model), "guard")
    tally.count("wrong repairs of ONNX models: not verified", int(verdict.status not in APPLICABLE), 1)
    assert verdict.status in ("rejected", "unverified"), verdict


@pytest.mark.parametrize("name", ["log_softmax", "in_branch"])
def test_the_wrong_axis_is_rejected(name: str) -> None:
    defect, _ = _defect(name)
    made = _made(name)[0].model
    other = onnx.ModelProto()
    other.CopyFrom(made)
    graphs = [other.graph, *(a.g for node in other.graph.node for a in node.attribute if a.HasField("g"))]
    nodes = [node for graph in graphs for node in graph.node if node.op_type == "LogSoftmax"]
    for node in nodes:
        node.attribute[0].i = 0
    assert nodes
    assert _judged(defect, other, "reformulation").status == "rejected"


@pytest.mark.parametrize("name", _sample(DEFECTS))
def test_the_defect_itself_is_rejected(name: str) -> None:
    defect, _ = _defect(name)
    assert _judged(defect, defect.model, "reformulation").status == "rejected"
