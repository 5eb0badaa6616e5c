"""The bodies of If, Loop and Scan, iteration by iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnx_doubles import NoSites
from tests.unit.capture.onnx.told import FLOAT, Told, model, node, saved, scalar
from whynan.analysis import judge_births
from whynan.capture.onnx.arrays import same_bits
from whynan.capture.onnx.engine import EngineSettings, run
from whynan.capture.onnx.graph.sites import Sites
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder

ENGINES = ["onnxruntime", "reference"]
X = np.array([4.0, -1.0, 9.0], np.float32)


def graph(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    """A body."""
    return helper.make_graph(nodes, name, inputs, outputs)


def of_floats(name: str) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, None)


def pair(name: str) -> Any:
    """A Scan wants to know the shapes of what its body gives."""
    return helper.make_tensor_value_info(name, FLOAT, [2])


def ran(proto: Any, folder: Path, feeds: dict[str, Any], engine: str) -> tuple[Told, Any]:
    told = Told(again=engine == "onnxruntime")
    outcome = run(EngineSettings(saved(proto, folder), graph="original", engine=engine), feeds, told)  # type: ignore[arg-type]
    assert outcome.bit_equal is True
    assert outcome.notes == ()
    assert all(told.same_alone)
    return told, outcome


def loop() -> Any:
    """Three times: the root of the state, less one; the roots are collected."""
    body = graph(
        "body",
        [node("Sqrt", "state", "root"), node("Sub", "root one", "next"), node("Identity", "going", "still")],
        [scalar("i"), scalar("going", TensorProto.BOOL), of_floats("state")],
        [scalar("still", TensorProto.BOOL), of_floats("next"), of_floats("root")],
    )
    nodes = [node("Abs", "x", "a"), node("Loop", "count - a", "last roots", body=body), node("Neg", "last", "y")]
    return model(nodes, ["x"], ["y", "roots"], {"one": np.float32(1), "count": np.array(3)})


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_is_told_iteration_by_iteration(tmp_path: Path, engine: str) -> None:
    proto = loop()
    if engine == "reference":  # which wants the condition
        proto.graph.node[1].input[1] = "yes"
        proto.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    told, _ = ran(proto, tmp_path, {"x": X}, engine)
    paths = [n.body for n in told.nodes if n.op == "Sqrt"]
    assert paths == [(("loop", "body", i),) for i in range(3)]
    enters = [entry for entry in told.bodies if entry[0] == "enters"]
    first = "" if engine == "onnxruntime" else "yes"
    assert [entry[2] for entry in enters] == [("", first, "a"), ("", "still", "next"), ("", "still", "next")]
    assert [int(np.asarray(entry[3][0])) for entry in enters] == [0, 1, 2]
    leaves = [entry for entry in told.bodies if entry[0] == "leaves"]
    roots: Any = told.values["roots"]
    assert [leave[1] for leave in leaves] == [("still", "next", "root")] * 3
    if engine == "onnxruntime":
        assert all(same_bits(leave[3][2], np.array(roots[i])) for i, leave in enumerate(leaves))
    assert np.isnan(roots).sum() == 1
    ops = [n.op for n in told.nodes]
    assert ops.index("Loop") == len(ops) - 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", [1.0, -1.0])
def test_only_the_branch_that_ran_is_told(tmp_path: Path, engine: str, value: float) -> None:
    then = graph("then", [node("Sqrt", "x", "t")], [], [of_floats("t")])
    other = graph("else", [node("Neg", "x", "n"), node("Log", "n", "e")], [], [of_floats("e")])
    nodes = [node("Greater", "x zero", "g"), node("If", "g", "y", then_branch=then, else_branch=other)]
    proto = model(nodes, [scalar("x", FLOAT)], ["y"], {"zero": np.float32(0)})
    told, _ = ran(proto, tmp_path, {"x": np.array(value, np.float32)}, engine)
    inside = [n.op for n in told.nodes if n.body]
    assert inside == (["Sqrt"] if value > 0 else ["Neg", "Log"])
    assert {n.body[0][1] for n in told.nodes if n.body} == {"then_branch" if value > 0 else "else_branch"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_scan_is_told_slice_by_slice(tmp_path: Path, engine: str) -> None:
    body = graph(
        "body",
        [node("Add", "sum part", "next"), node("Log", "next", "out")],
        [pair("sum"), pair("part")],
        [pair("next"), pair("out")],
    )
    nodes = [node("Scan", "zero x", "total logs", body=body, num_scan_inputs=1)]
    proto = model(nodes, ["x"], ["total", "logs"], {"zero": np.zeros(2, np.float32)})
    x = np.array([[1, -1], [2, -2], [3, 4]], np.float32)
    told, _ = ran(proto, tmp_path, {"x": x}, engine)
    enters = [entry for entry in told.bodies if entry[0] == "enters"]
    assert [entry[2] for entry in enters] == [("zero", "x"), ("next", "x"), ("next", "x")]
    assert all(same_bits(entry[3][1], x[i]) for i, entry in enumerate(enters))


def test_a_scan_may_run_backwards_along_any_axis(tmp_path: Path) -> None:
    body = graph(
        "body",
        [node("Add", "sum part", "next"), node("Neg", "next", "out")],
        [pair("sum"), pair("part")],
        [pair("next"), pair("out")],
    )
    how = {"scan_input_axes": [1], "scan_input_directions": [1], "scan_output_axes": [1], "scan_output_directions": [1]}
    nodes = [node("Scan", "zero x", "total sums", body=body, num_scan_inputs=1, **how)]
    proto = model(nodes, ["x"], ["total", "sums"], {"zero": np.zeros(2, np.float32)})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    told, _ = ran(proto, tmp_path, {"x": x}, "onnxruntime")
    enters = [entry for entry in told.bodies if entry[0] == "enters"]
    assert all(same_bits(entry[3][1], np.array(x[:, 2 - i])) for i, entry in enumerate(enters))


def test_a_body_in_a_body_reads_what_is_around_both(tmp_path: Path) -> None:
    then = graph("then", [node("Mul", "state x", "t")], [], [of_floats("t")])
    other = graph("else", [node("Div", "state zero", "e")], [], [of_floats("e")])
    body = graph(
        "body",
        [
            node("Equal", "i one", "is_one"),
            node("If", "is_one", "next", then_branch=then, else_branch=other),
            node("Identity", "going", "still"),
        ],
        [scalar("i"), scalar("going", TensorProto.BOOL), of_floats("state")],
        [scalar("still", TensorProto.BOOL), of_floats("next")],
    )
    nodes = [node("Loop", "count yes x", "y", body=body)]
    weights = {"zero": np.float32(0), "one": np.array(1), "count": np.array(2), "yes": np.array(True)}
    told, _ = ran(model(nodes, ["x"], ["y"], weights), tmp_path, {"x": X}, "onnxruntime")
    deepest = [(n.op, n.body) for n in told.nodes if len(n.body) == 2]
    assert deepest == [
        ("Div", (("loop", "body", 0), ("if", "else_branch", 0))),
        ("Mul", (("loop", "body", 1), ("if", "then_branch", 0))),
    ]


def test_a_loop_that_ends_itself_or_does_not_begin(tmp_path: Path) -> None:
    body = graph(
        "body",
        [node("Neg", "state", "next"), node("Less", "i two", "still")],
        [scalar("i"), scalar("going", TensorProto.BOOL), of_floats("state")],
        [scalar("still", TensorProto.BOOL), of_floats("next")],
    )
    nodes = [node("Loop", "- yes x", "y", body=body)]
    proto = model(nodes, ["x", scalar("yes", TensorProto.BOOL)], ["y"], {"two": np.array(2)})
    told, _ = ran(proto, tmp_path, {"x": X, "yes": np.array(True)}, "onnxruntime")
    assert sum(n.op == "Neg" for n in told.nodes) == 3
    told, _ = ran(proto, tmp_path, {"x": X, "yes": np.array(False)}, "onnxruntime")
    assert [n.op for n in told.nodes] == ["Loop"]


def test_a_body_that_gives_other_bits_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whynan.capture.onnx.control_flow.same_bits", lambda one, other: False)
    body = graph(
        "body",
        [node("RandomNormal", "", "r", shape=[2]), node("Identity", "going", "still")],
        [scalar("i"), scalar("going", TensorProto.BOOL)],
        [scalar("still", TensorProto.BOOL), of_floats("r")],
    )
    nodes = [node("Loop", "count -", "y", body=body)]
    told = Told()
    outcome = run(EngineSettings(saved(model(nodes, [], ["y"], {"count": np.array(2)}), tmp_path)), {}, told)
    assert any(note.kind == "body_differs" for note in outcome.notes)


def batched(inputs: str, **how: Any) -> Any:
    """A Scan of opset 8, which adds up the rows of each element of a batch, and gives the logarithms of the sums."""
    body = graph(
        "body",
        [node("Add", "sum part", "next"), node("Log", "next", "out")],
        [pair("sum"), pair("part")],
        [pair("next"), pair("out")],
    )
    scan = node("Scan", inputs, "total logs", "scan", body=body, num_scan_inputs=1, **how)
    given = [name for name in inputs.split() if name in ("zero", "x")]
    given += [scalar("lengths", shape=[2])] if "lengths" in inputs else []
    return model([scan], given, ["total", "logs"], opset=8)


ZERO = np.zeros((2, 2), np.float32)
BATCH = np.array([[[1, 5], [2, 5], [3, 5]], [[4, 5], [-4, 5], [6, 5]]], np.float32)


def told_of(proto: Any, folder: Path, **feeds: Any) -> tuple[Told, Any]:
    told = Told()
    outcome = run(EngineSettings(saved(proto, folder), graph="original"), {"zero": ZERO, **feeds}, told)
    assert (outcome.bit_equal, outcome.notes) == (True, ())
    return told, outcome


def test_a_scan_of_a_batch_is_told_element_by_element(tmp_path: Path) -> None:
    told, _ = told_of(batched("- zero x"), tmp_path, x=BATCH)
    assert [n.body for n in told.nodes if n.op == "Log"] == [
        (("scan", "batch", one), ("scan", "body", turn)) for one in range(2) for turn in range(3)
    ]
    parts = [values[1] for kind, names, _, values in told.bodies if kind == "enters" and names == ("sum", "part")]
    assert same_bits(parts, [np.array(row) for one in BATCH for row in one])
    assert [n.op for n in told.nodes if not n.body] == ["Scan"]


def test_of_a_batch_each_sequence_has_its_length_and_way(tmp_path: Path) -> None:
    lengths = np.array([1, 3])
    told, _ = told_of(batched("lengths zero x", directions=[1]), tmp_path, x=BATCH, lengths=lengths)
    parts = [values[1] for kind, names, _, values in told.bodies if kind == "enters" and names == ("sum", "part")]
    assert same_bits(parts, [np.array(row) for row in (BATCH[0, 0], BATCH[1, 2], BATCH[1, 1], BATCH[1, 0])])


@pytest.mark.parametrize("lengths", [None, [2, 3], [1, 1]], ids=str)
def test_a_birth_in_a_batch_has_its_turn_and_goes_its_way(tmp_path: Path, lengths: list[int] | None) -> None:
    proto = batched("- zero x" if lengths is None else "lengths zero x")
    feeds: dict[str, Any] = {"zero": ZERO, "x": BATCH}
    if lengths is not None:
        feeds["lengths"] = np.array(lengths)
    (scan,) = proto.graph.node
    trace = next(a.g for a in scan.attribute if a.name == "body").node[1].metadata_props.add()
    trace.key, trace.value = "pkg.torch.onnx.stack_trace", 'File "/home/me/net.py", line 5, in forward\n    return x'
    sites = Sites(proto, None)
    births = BirthObserver(Recorder(), sites, ranges=True)
    births.before = sites.set_main_graph
    run(EngineSettings(saved(proto, tmp_path), graph="original"), feeds, births)
    found = judge_births(births.end())
    if lengths == [1, 1]:
        assert found.verdict == "clean"
        return
    (finding,) = found.escaped
    assert (finding.node, finding.birth) == ("scan/batch[1]/scan/body[1]/log", "pole")
    assert finding.site is not None
    assert finding.site.line == 5
    assert [(r.name, r.bad, r.total) for r in finding.reaches] == [("logs", 1, 12)]


def test_what_is_bad_before_a_batch_is_carried_into_it(tmp_path: Path) -> None:
    x = BATCH.copy()
    x[0, 2, 1] = np.nan
    births = BirthObserver(Recorder(), NoSites(), ranges=False)
    run(EngineSettings(saved(batched("- zero x"), tmp_path), graph="original"), {"zero": ZERO, "x": x}, births)
    found = judge_births(births.end())
    told = {(f.birth, f.value): {(r.name, r.bad) for r in f.reaches} for f in found.escaped}
    assert told == {("entered", "x"): {("total", 1), ("logs", 1)}, ("pole", "out"): {("logs", 1)}}
