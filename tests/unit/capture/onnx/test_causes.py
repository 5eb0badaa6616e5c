"""What made the operand bad: from the birth back to where its value came from, in sentences with values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.capture.onnx.looking import N, f32, look
from whynan.capture.onnx import levels

ONE = {"one": np.ones((), np.float32)}


def test_a_product_that_underflowed_is_told_with_its_factors() -> None:
    nodes = [
        N("Mul", ["x", "c"], ["p"], name="scale"),
        N("Mul", ["p", "p"], ["s"], name="square"),
        N("Div", ["one", "s"], ["y"], name="div"),
    ]
    seen = look(nodes, {"x": f32(1, 2)}, ["y"], {**ONE, "c": np.array(1e-30, np.float32)})
    told = "1e-30 times 1e-30 is 0 in float32, whose smallest number is 1.4e-45"
    assert ("cause", told) in seen.chain
    assert "That 0 is an underflow of float32" in seen.first.explanation


def test_the_path_goes_through_what_only_moves() -> None:
    nodes = [
        N("Sub", ["x", "x"], ["d"], name="sub"),
        N("Transpose", ["d"], ["t"], name="turn", perm=[1, 0]),
        N("Concat", ["t", "t"], ["c"], name="join", axis=0),
        N("Slice", ["c", "from", "to"], ["s"], name="cut"),
        N("Div", ["one", "s"], ["y"], name="div"),
    ]
    held = {**ONE, "from": np.array([1], np.int64), "to": np.array([3], np.int64)}
    seen = look(nodes, {"x": np.ones((2, 3), np.float32)}, ["y"], held)
    causes = [link for link in seen.first.chain if link.role == "cause"]
    assert [(c.node, c.summary) for c in causes] == [("sub", "1 minus 1 is 0")]


def test_an_input_is_named_with_its_element() -> None:
    seen = look([N("Relu", ["x"], ["r"], name="relu"), N("Log", ["r"], ["y"])], {"x": f32(1, -3)}, ["y"])
    assert seen.chain[0] == ("cause", "Relu made -3 into 0")
    assert look([N("Log", ["x"], ["y"])], {"x": f32(1, 0)}, ["y"]).chain[0] == ("cause", "input x[1] is 0")


def test_the_greatest_term_of_a_product_is_told() -> None:
    nodes = [N("MatMul", ["x", "w"], ["m"], name="mm"), N("Exp", ["m"], ["y"], name="exp")]
    weights = np.array([[1.0], [50.0], [-1.0]], np.float32)
    seen = look(nodes, {"x": np.array([[1, 2, 3]], np.float32)}, ["y"], {"w": weights})
    assert ("cause", "2 times 50, the greatest term of the product, makes it 98") in seen.chain


def test_a_value_that_is_not_kept_is_asked_for_and_tells_more_in_a_second_run() -> None:
    large = np.ones(1 << 16, np.float32)
    nodes = [N("Sub", ["x", "x"], ["d"], name="sub"), N("Div", ["one", "d"], ["y"], name="div")]
    first = look(nodes, {"x": large}, ["y"], ONE)
    assert ("cause", "Sub made it 0") in first.chain
    assert "x" in first.births.wanted()
    second = look(nodes, {"x": large}, ["y"], ONE, keep=first.births.wanted())
    assert ("cause", "1 minus 1 is 0") in second.chain
    assert not second.births.wanted()


def test_steps_are_told_from_the_birth_to_the_output() -> None:
    nodes = [
        N("Log", ["x"], ["l"], name="log"),
        N("MatMul", ["l", "w"], ["m"], name="mm"),
        N("Tanh", ["m"], ["y"], name="tanh"),
    ]
    seen = look(nodes, {"x": np.array([[-1, 1]], np.float32)}, ["y"], {"w": np.ones((2, 3), np.float32)})
    assert [(link.role, link.node) for link in seen.first.chain if link.role != "cause"] == [
        ("birth", "log"),
        ("step", "mm"),
        ("step", "tanh"),
        ("sink", None),
    ]


def test_an_axis_is_no_part_of_a_sum() -> None:
    nodes = [N("ReduceL2", ["x", "axis"], ["n"], name="norm"), N("Div", ["x", "n"], ["y"], name="div")]
    held = {"axis": np.array([-1], np.int64)}
    seen = look(nodes, {"x": np.zeros((1, 3), np.float32)}, ["y"], held)
    assert ("cause", "ReduceL2 of a row of 0 is 0") in seen.chain


def test_the_oldest_of_small_values_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "BUDGET", 64)
    held = levels.Levels({"asked"})
    for name in ("asked", "first", "second", "third"):
        held.remember(held.main, name, np.zeros(8, np.float32))
    assert set(held.main.values) == {"asked", "second", "third"}
