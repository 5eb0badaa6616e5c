"""What ONNX Runtime computes before the run: a number that is born there is told where the file has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from syrupy.assertion import SnapshotAssertion

from tests.integration.onnx_command import model, run

pytestmark = pytest.mark.process

QUOTIENT = [
    helper.make_node("Sub", ["w", "w"], ["zero"], "/Sub"),
    helper.make_node("Div", ["w", "zero"], ["ratio"], "/Div"),
    helper.make_node("Add", ["x", "ratio"], ["out"], "/Add"),
]


def test_infinity_of_constants_alone_is_a_birth(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    ran = run(tmp_path, model(tmp_path, QUOTIENT, "x", "out", ("w", np.array([[1, 2, 3]], np.float32))), "-i", "x=ones")

    assert ran.report is not None
    found = ran.report["findings"][0]
    assert (ran.status, ran.report["verdict"], found["rule"], found["node"]) == (1, "nonfinite", "WN102", "/Div")
    assert found["birth"] == "pole"
    assert ran.out == snapshot


@pytest.mark.full
def test_births_of_constants_alone_are_those_of_the_graph_as_written(tmp_path: Path) -> None:
    path = model(tmp_path, QUOTIENT, "x", "out", ("w", np.array([[1, 0, 3]], np.float32)))

    folded, written = (run(tmp_path, path, "-i", "x=ones", *more).report for more in ((), ("--graph", "original")))

    assert folded is not None
    assert written is not None
    assert folded["run"]["inference"]["nodes"] == 1, "nothing was computed before the run"
    for report in (folded, written):
        told = [(f["rule"], f["node"], f["element"]["index"], f["reaches"]) for f in report["findings"]]
        out = [{"kind": "output", "name": "out", "bad": n, "total": 6, "value": None} for n in (2, 4)]
        assert told == [("WN101", "/Div", [0, 1], [out[0]]), ("WN102", "/Div", [0, 0], [out[1]])]


def branching(folder: Path, nodes: list[Any], *constants: tuple[str, Any]) -> str:
    """A model that computes its output in a branch."""
    out = [helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, None)]
    held = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants]
    branches = {f"{way}_branch": helper.make_graph(nodes, way, [], out, held) for way in ("then", "else")}
    first = [
        helper.make_node("ReduceSum", ["x"], ["all"], "/ReduceSum", keepdims=0),
        helper.make_node("Greater", ["all", "zero"], ["more"], "/Greater"),
    ]
    choice = helper.make_node("If", ["more"], ["out"], "/If", **branches)
    return model(folder, [*first, choice], "x", "out", ("zero", np.float32(0)))


def test_what_is_folded_in_a_body_is_found_there(tmp_path: Path) -> None:
    nodes = [helper.make_node("Log", ["m"], ["k"], "/Log"), helper.make_node("Add", ["x", "k"], ["sum"], "/Add")]
    path = branching(tmp_path, nodes, ("m", np.float32(-1)))
    folded, written = (run(tmp_path, path, "-i", "x=ones", *more) for more in ((), ("--graph", "original")))
    assert folded.report is not None
    assert written.report is not None
    for report in (folded.report, written.report):
        assert [f["node"] for f in report["findings"]] == ["/If/then_branch/" + "/Log"]
    said = "what is bad in k was computed by the optimizer before the run: the graph is told of as it is written"
    assert said in folded.report["coverage"]["notes"]
    assert said not in written.report["coverage"]["notes"]


def test_a_mask_that_stands_in_a_body_is_not_noted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "m"], ["s"], "/Add"), helper.make_node("Exp", ["s"], ["sum"], "/Exp")]
    ran = run(tmp_path, branching(tmp_path, nodes, ("m", np.array([[0, 0, -np.inf]], np.float32))), "-i", "x=ones")
    assert ran.report is not None
    assert (ran.report["verdict"], ran.report["coverage"]["notes"]) == ("clean", [])


def test_what_is_folded_of_a_function_is_found_there(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.float32(-1)))
    nodes = [constant, helper.make_node("Log", ["c"], ["k"], "log"), helper.make_node("Add", ["p", "k"], ["q"], "add")]
    function = helper.make_function("local", "Shifted", ["p"], ["q"], nodes, [helper.make_opsetid("", 18)])
    call = helper.make_node("Shifted", ["x"], ["out"], "/call", domain="local")
    name = model(tmp_path, [call], "x", "out")
    held = onnx.load(tmp_path / name)
    held.functions.append(function)
    held.opset_import.append(helper.make_opsetid("local", 1))
    onnx.save(held, tmp_path / name)
    ran = run(tmp_path, name, "-i", "x=ones")
    assert ran.report is not None
    assert [f["op"] for f in ran.report["findings"]] == ["Log"]
    assert any("computed by the optimizer before the run" in note for note in ran.report["coverage"]["notes"])


def test_weights_in_files_are_folded_too(tmp_path: Path) -> None:
    path = model(tmp_path, QUOTIENT, "x", "out", ("w", np.full((2, 3), 2, np.float32)))
    files: Any = onnx
    files.save(
        files.load(tmp_path / path), tmp_path / path, save_as_external_data=True, location="small.bin", size_threshold=0
    )

    ran = run(tmp_path, path, "-i", "x=ones")

    assert ran.report is not None
    assert [(f["rule"], f["node"]) for f in ran.report["findings"]] == [("WN102", "/Div")]


def test_mask_that_is_made_before_the_run_is_no_birth(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], "/Shape"),
        helper.make_node("Expand", ["least", "shape"], ["all"], "/Expand"),
        helper.make_node("Where", ["seen", "zero", "all"], ["mask"], "/Where"),
        helper.make_node("Add", ["x", "mask"], ["scores"], "/Add"),
        helper.make_node("Softmax", ["scores"], ["out"], "/Softmax"),
    ]
    constants = (
        ("least", np.float32(-np.inf)),
        ("zero", np.float32(0)),
        ("seen", np.array([[True, True, False], [True, False, False]])),
    )

    ran = run(tmp_path, model(tmp_path, nodes, "x", "out", *constants), "-i", "x=ones")

    assert ran.report is not None
    assert ran.report["run"]["inference"]["nodes"] == 2, "the mask was not made before the run"
    assert (ran.status, ran.report["verdict"], ran.report["coverage"]["notes"]) == (0, "clean", [])


def test_what_a_fusion_made_bad_is_told_of_the_node_of_the_file(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "/MatMul"),
        helper.make_node("BatchNormalization", ["y", "s", "b", "m", "v"], ["out"], "/Norm", epsilon=0.0),
    ]
    constants = (
        ("w", np.ones((3, 3), np.float32)),
        *((name, np.array([1, 1, 0], np.float32)) for name in "sbmv"),
    )

    ran = run(tmp_path, model(tmp_path, nodes, "x", "out", *constants), "-i", "x=ones")

    assert ran.report is not None
    assert ran.report["run"]["inference"]["nodes"] == 1, "nothing was computed before the run"
    assert ran.out == snapshot
