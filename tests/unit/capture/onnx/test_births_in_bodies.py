"""Births inside of Loop, Scan and If: their paths, and the labels that cross the borders of bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.unit.capture.onnx.looking import N, f32, look

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info


def _loop(inner: list[Any], name: str = "loop") -> Any:
    """A Loop whose body turns `s` into `t` and collects `c`."""
    body = helper.make_graph(
        [*inner, N("Identity", ["go"], ["on"])],
        "body",
        [info("i", INT, []), info("go", BOOL, []), info("s", FLOAT, None)],
        [info("on", BOOL, []), info("t", FLOAT, None), info("c", FLOAT, None)],
    )
    return N("Loop", ["count", "true", "x"], ["last", "all"], name=name, body=body)


HELD = {
    "count": np.array(3, np.int64),
    "true": np.array(True),
    "one": np.array(1, np.float32),
    "first": np.array(0, np.int64),
}


def test_a_birth_in_a_later_iteration_says_which() -> None:
    loop = _loop(
        [
            N("Sub", ["s", "one"], ["t"], name="less"),
            N("Log", ["t"], ["c"], name="log"),
        ]
    )
    seen = look([loop], {"x": f32(2.5)}, ["last", "all"], HELD)
    assert seen.first.node == "loop/body[2]/log"
    assert (seen.first.element.index, [r.name for r in seen.first.reaches]) == ((0,), ["all"])


def test_a_birth_that_is_repeated_in_iterations_is_one_finding() -> None:
    loop = _loop([N("Identity", ["s"], ["t"]), N("Log", ["s"], ["c"], name="log")])
    seen = look([loop], {"x": f32(-1)}, ["last", "all"], HELD)
    (found,) = seen.findings.escaped
    assert (found.node, found.occurrences) == ("loop/body[0]/log", 3)


def test_a_label_goes_into_a_body_on_to_the_next_iteration_and_out() -> None:
    loop = _loop([N("Add", ["s", "one"], ["t"], name="add"), N("Neg", ["s"], ["c"])])
    nodes = [N("Log", ["w"], ["x"], name="log"), loop, N("Neg", ["last"], ["y"], name="after")]
    seen = look(nodes, {"w": f32(-1, 1)}, ["y", "all"], HELD)
    (found,) = seen.findings.escaped
    assert (found.node, found.element.index) == ("log", (0,))
    assert {(r.name, r.bad, r.total) for r in found.reaches} == {("y", 1, 2), ("all", 3, 6)}


def test_a_body_reads_what_is_bad_around_it() -> None:
    loop = _loop([N("Add", ["s", "bad"], ["t"], name="add"), N("Identity", ["s"], ["c"])])
    seen = look([N("Log", ["w"], ["bad"], name="log"), loop], {"w": f32(-1, 1), "x": f32(1, 1)}, ["last", "all"], HELD)
    (found,) = seen.findings.escaped
    assert found.node == "log"


def test_a_loop_that_does_not_turn_hands_its_state_on() -> None:
    loop = _loop([N("Neg", ["s"], ["t"]), N("Neg", ["s"], ["c"])])
    nodes = [N("Log", ["w"], ["x"], name="log"), loop]
    seen = look(nodes, {"w": f32(-1, 1)}, ["last"], {**HELD, "count": np.array(0, np.int64)})
    (found,) = seen.findings.escaped
    assert found.node == "log"


def test_a_branch_has_no_number() -> None:
    then = helper.make_graph([N("Log", ["x"], ["l"], name="log")], "then", [], [info("l", FLOAT, None)])
    other = helper.make_graph([N("Neg", ["x"], ["n"], name="neg")], "else", [], [info("n", FLOAT, None)])
    node = N("If", ["yes"], ["y"], name="if", then_branch=then, else_branch=other)
    seen = look([node], {"x": f32(-1, 1)}, ["y"], {"yes": np.array(True)})
    (found,) = seen.findings.escaped
    assert (found.node, found.element.index) == ("if/then_branch/log", (0,))
    assert [(r.name, r.bad) for r in found.reaches] == [("y", 1)]


def test_a_scan_takes_slices_and_gives_them_back() -> None:
    body = helper.make_graph(
        [N("Add", ["s", "part"], ["t"], name="add"), N("Neg", ["part"], ["c"], name="neg")],
        "body",
        [info("s", FLOAT, [2]), info("part", FLOAT, [2])],
        [info("t", FLOAT, [2]), info("c", FLOAT, [2])],
    )
    scan = N("Scan", ["x", "rows"], ["last", "all"], name="scan", body=body, num_scan_inputs=1)
    rows = np.array([[1, 1], [1, -1], [1, 1]], np.float32)
    seen = look([N("Log", ["w"], ["rows"], name="log"), scan], {"w": rows, "x": f32(0, 0)}, ["last", "all"])
    (found,) = seen.findings.escaped
    assert (found.node, found.element.index) == ("log", (1, 1))
    assert {(r.name, r.bad) for r in found.reaches} == {("last", 1), ("all", 1)}
