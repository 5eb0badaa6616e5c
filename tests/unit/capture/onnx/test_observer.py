"""The observer as an engine calls it: every dtype, sequences, what it writes, and what it asks of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from tests.onnx_doubles import NoSites, counters_of
from tests.onnx_engine import model_of, run
from tests.unit.capture.onnx.looking import N, f32, look
from whynan.analysis import judge_births
from whynan.capture.onnx.execution import Node
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder
from whynan.records import ExitStatus, Run, Site
from whynan.traces.reader import read_trace
from whynan.traces.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from whynan.traces import Trace


def _nobody(_node: Node, _inputs: Sequence[Any]) -> list[Any]:
    raise RuntimeError("cannot be run by itself")


def _node(index: int, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Node:
    proto = helper.make_node(op, inputs, outputs, **attributes)
    return Node(index, f"n{index}", op, "", tuple(inputs), tuple(outputs), proto, opset=18)


def _told(steps: Sequence[tuple[Node, list[Any], list[Any]]], outputs: dict[str, Any]) -> Trace:
    """What is found where an engine tells of these nodes, none of which can be run again."""
    births = BirthObserver(Recorder(), NoSites(), ranges=True, count=counters_of)
    births.on_begin([node for node, _, _ in steps], _nobody)
    for node, inputs, values in steps:
        births.on_node(node, inputs, values)
    for name, value in outputs.items():
        births.on_output(name, value)
    return births.end()


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.complex64], ids=str
)
def test_a_birth_is_found_in_every_dtype(dtype: Any) -> None:
    x, y = np.array([1, 0, 2]).astype(dtype), np.array([1, np.nan, 2]).astype(dtype)
    trace = _told([(_node(0, "Div", ["x", "x"], ["y"]), [x, x], [y])], {"y": y})
    (found,) = judge_births(trace).escaped
    assert (found.birth, found.element.index, found.element.count) == ("invalid", (1,), 1)
    assert trace.ranges[0].n_nan == 1


@pytest.mark.parametrize(
    "value",
    [
        np.array(["a", "b"], object),
        np.array([], np.float32),
        np.array(3, np.int64),
        np.array([True]),
        np.array([1], ml_dtypes.int4),
        None,
        [],
        [np.array([1.0])],
    ],
    ids=repr,
)
def test_what_cannot_be_bad_passes(value: Any) -> None:
    trace = _told([(_node(0, "Custom", ["x"], ["y"]), [value], [value])], {"y": value})
    assert judge_births(trace).verdict == "clean"
    assert len(trace.ranges) == 1


def test_where_nothing_can_be_run_again_what_was_bad_is_taken_for_the_reason() -> None:
    x, bad, out = f32(-1, 1), f32(np.nan, 1), f32(np.nan, np.nan)
    steps = [(_node(0, "Log", ["x"], ["l"]), [x], [bad]), (_node(1, "Custom", ["l"], ["y"]), [bad], [out])]
    (found,) = judge_births(_told(steps, {"y": out})).escaped
    assert (found.op, [(r.bad, r.total) for r in found.reaches]) == ("Log", [(2, 2)])


def test_a_bad_value_that_was_never_told_of_has_entered() -> None:
    bad = f32(np.nan, 1)
    (found,) = judge_births(_told([(_node(0, "Neg", ["x"], ["y"]), [bad], [bad])], {"y": bad})).escaped
    assert (found.birth, found.value) == ("entered", "x")


def test_an_output_that_no_node_wrote_is_unexplained() -> None:
    trace = _told([], {"y": f32(np.nan)})
    assert (len(trace.unexplained), judge_births(trace).verdict) == (1, "inconclusive")


def test_labels_go_through_sequences() -> None:
    bad, good, out = f32(np.nan), f32(1), f32(np.nan)
    one = np.array(1, np.int64)
    steps = [
        (_node(0, "Log", ["x"], ["l"]), [f32(-1)], [bad]),
        (_node(1, "SequenceConstruct", ["g", "l"], ["s"]), [good, bad], [[good, bad]]),
        (_node(2, "SequenceInsert", ["s", "g"], ["t"]), [[good, bad], good], [[good, bad, good]]),
        (_node(3, "SequenceErase", ["t", "zero"], ["u"]), [[good, bad, good], one * 0], [[bad, good]]),
        (_node(4, "SequenceAt", ["u", "zero"], ["y"]), [[bad, good], one * 0], [out]),
        (_node(5, "SequenceAt", ["u", "one"], ["z"]), [[bad, good], one], [good]),
    ]
    (found,) = judge_births(_told(steps, {"y": out, "z": good, "u": [bad, good]})).escaped
    assert (found.op, {r.name for r in found.reaches}) == ("Log", {"y", "u"})


def test_ranges_and_facts_are_read_back_from_the_folder(tmp_path: Path) -> None:
    feeds = {"x": f32(-1, 4)}
    model = model_of([N("Log", ["x"], ["l"], name="log"), N("Neg", ["l"], ["y"], name="neg")], feeds, ["y"])
    writer = TraceWriter(tmp_path / "trace")
    known = Run(command="onnx m.onnx", exit_status=ExitStatus(script=None, whynan=0))
    writer.begin(known, {})
    births = BirthObserver(Recorder(writer), NoSites(), ranges=True, count=counters_of)
    run(model, feeds, births)
    trace = births.end()
    writer.end(known)
    read = read_trace(tmp_path / "trace").trace
    assert [(b.event, b.kind, b.steps) for b in read.births] == [(b.event, b.kind, b.steps) for b in trace.births]
    assert read.sinks == trace.sinks
    assert [(r.node, r.value, r.op, r.event, r.n_nan, r.shape) for r in read.ranges] == [
        ("log", "l", "Log", 0, 1, (2,)),
        ("neg", "y", "Neg", 1, 1, (2,)),
    ]


def test_facts_are_there_after_the_first_birth(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace")
    writer.begin(Run(command="onnx m.onnx", exit_status=ExitStatus(script=None, whynan=0)), {})
    births = BirthObserver(Recorder(writer), NoSites(), ranges=True, count=counters_of)
    births.on_begin([], _nobody)
    births.on_node(_node(0, "Log", ["x"], ["y"]), [f32(-1)], [f32(np.nan)])
    # the process ends here
    read = read_trace(tmp_path / "trace").trace
    assert [b.event.node for b in read.births] == ["n0"]
    assert [s.kind for s in read.sinks] == ["observed"]
    assert len(read.ranges) == 1


def test_headroom_is_of_the_dtype() -> None:
    seen = look(
        [N("Cast", ["x"], ["h"], name="cast", to=10), N("Cast", ["h"], ["y"], to=1)], {"x": f32(-6550.4)}, ["y"]
    )
    assert seen.trace.ranges[0].headroom is None  # counted without a range here
    births = BirthObserver(Recorder(), NoSites(), ranges=True, count=_counted)
    births.on_begin([], _nobody)
    births.on_node(_node(0, "Cast", ["x"], ["h"]), [f32(-6550.4)], [np.array([-6552], np.float16)])
    (found,) = births.end().ranges
    assert found.headroom == pytest.approx(6552 / 65504)


def _counted(value: Any) -> Any:
    from dataclasses import replace

    return replace(counters_of(value), finite_min=float(value.min()), finite_max=float(value.max()))


class _Here(NoSites):
    """Knows a line for everything, and that a node was fused."""

    def site(self, node: Node, output: str) -> tuple[Site | None, Site | None, str | None, str, str, str]:
        return Site(file="model.py", line=7), None, "encoder.layer", node.name, f"as written: {output}", node.op

    def fusion_note(self, node: Node) -> str | None:
        return "was made of Conv c and Relu r"


def test_a_birth_stands_where_the_source_says() -> None:
    births = BirthObserver(Recorder(), _Here(), ranges=True, count=counters_of)
    births.on_begin([], _nobody)
    births.on_node(_node(0, "FusedConv", ["x", "w"], ["y"]), [f32(1), f32(1)], [f32(np.inf)])
    births.on_output("y", f32(np.inf))
    (found,) = judge_births(births.end()).escaped
    assert found.site == Site(file="model.py", line=7, module="encoder.layer")
    assert (found.modules, found.value) == (("encoder.layer",), "as written: y")
    assert found.made_of == "FusedConv was made of Conv c and Relu r"
    assert found.chain[0].summary == "FusedConv gives Inf"


def test_what_nothing_reads_any_more_leaves_only_counts() -> None:
    nodes = [N("Log", ["x"], ["l"]), N("Neg", ["l"], ["n"]), N("Abs", ["n"], ["y"])]
    seen = look(nodes, {"x": f32(-1, 1)}, ["y", "l"])
    marks = seen.births.scopes.main.marks
    assert all(m.plane is None and m.counts for m in (marks["l"], marks["n"]))  # type: ignore[union-attr]
    assert {(r.name, r.bad) for r in seen.first.reaches} == {("y", 1), ("l", 1)}
