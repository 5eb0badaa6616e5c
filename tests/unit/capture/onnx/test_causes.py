"""What made the operand bad: from the birth back to where its value came from, in sentences with values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnx_engine import FLOAT
from tests.unit.capture.onnx.looking import Looked, N, f32, look
from whynan.capture.onnx.provenance import body_scopes

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


def test_the_infinity_that_a_finite_number_was_made_of_is_told() -> None:
    nodes = [N("Add", ["x", "m"], ["a"]), N("Exp", ["a"], ["e"]), N("Log", ["e"], ["y"])]
    seen = look(nodes, {"x": f32(1, 2)}, ["y"], {"m": f32(-np.inf, 0)})
    told = ["initializer m[0] is -Inf", "1 plus -Inf is -Inf", "Exp of -Inf is 0"]
    assert [what for role, what in seen.chain if role == "cause"] == told


def test_of_a_sum_of_products_that_is_0_the_term_whose_factor_was_computed_is_told() -> None:
    nodes = [N("Sub", ["x", "x"], ["z"]), N("MatMul", ["z", "w"], ["p"]), N("Log", ["p"], ["y"])]
    seen = look(nodes, {"x": np.array([[1, 2]], np.float32)}, ["y"], {"w": np.array([[0], [5]], np.float32)})
    told = ["2 minus 2 is 0", "each term of the product is 0, such as 0 times 5"]
    assert [what for role, what in seen.chain if role == "cause"] == told


def test_what_is_added_to_a_sum_of_products_is_told_where_it_is_greater() -> None:
    nodes = [N("Gemm", ["x", "w", "c"], ["p"]), N("Exp", ["p"], ["y"])]
    held = {"w": np.array([[0], [5]], np.float32), "c": f32(1000)}
    seen = look(nodes, {"x": np.array([[1, 2]], np.float32)}, ["y"], held)
    told = ["initializer c[0] is 1000", "Gemm of 1000 is 1010"]
    assert [what for role, what in seen.chain if role == "cause"] == told


def test_an_input_is_named_with_its_element() -> None:
    seen = look([N("Relu", ["x"], ["r"], name="relu"), N("Log", ["r"], ["y"])], {"x": f32(1, -3)}, ["y"])
    assert seen.chain[0] == ("cause", "Relu made -3 into 0")
    assert look([N("Log", ["x"], ["y"])], {"x": f32(1, 0)}, ["y"]).chain[0] == ("cause", "input x[1] is 0")


def test_the_greatest_term_of_a_product_is_told() -> None:
    nodes = [N("MatMul", ["x", "w"], ["m"], name="mm"), N("Exp", ["m"], ["y"], name="exp")]
    weights = np.array([[1.0], [50.0], [-1.0]], np.float32)
    seen = look(nodes, {"x": np.array([[1, 2, 3]], np.float32)}, ["y"], {"w": weights})
    assert ("cause", "2 times 50, the greatest term of the product, makes it 98") in seen.chain


def test_of_a_value_that_is_not_kept_the_node_is_told() -> None:
    nodes = [N("Sub", ["x", "x"], ["d"], name="sub"), N("Div", ["one", "d"], ["y"], name="div")]
    for size, said in ((1, "1 minus 1 is 0"), (body_scopes.SMALL, "Sub made it 0")):
        assert ("cause", said) in look(nodes, {"x": np.ones(size, np.float32)}, ["y"], ONE).chain


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


def body(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return helper.make_graph(nodes, "body", inputs, outputs)


def of(name: str, kind: int = FLOAT, shape: list[int] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def loop(*nodes: Any, after: Any) -> list[Any]:
    """Four times: the state less one; then what comes after."""
    held = body(
        [*nodes, N("Sub", ["s", "one"], ["d"], name="less"), N("Identity", ["c"], ["c2"])],
        [of("i", TensorProto.INT64, []), of("c", TensorProto.BOOL, []), of("s")],
        [of("c2", TensorProto.BOOL, []), of("d"), *([of("l")] if nodes else [])],
    )
    outputs = ["last", "logs"] if nodes else ["last"]
    return [N("Abs", ["x"], ["a"]), N("Loop", ["count", "", "a"], outputs, name="loop", body=held), *after]


def causes(seen: Looked) -> list[tuple[str | None, str]]:
    return [(link.node, link.summary) for link in seen.first.chain if link.role == "cause"]


COUNT = {**ONE, "count": np.array(4)}
LARGE = 1 << 15


@pytest.mark.parametrize("size", [1, LARGE])
def test_what_an_iteration_was_handed_is_told_by_the_one_before(size: int) -> None:
    nodes = loop(N("Log", ["s"], ["l"], name="log"), after=[N("Neg", ["last"], ["y"])])
    seen = look(nodes, {"x": np.full(size, 3, np.float32)}, ["logs"], COUNT)
    assert seen.first.node == "loop/body[3]/log"
    handed = [(None, "s[0] is 0 as loop/body[3] begins")]
    assert causes(seen) == (handed if size == LARGE else [("loop/body[2]/less", "1 minus 1 is 0")])


def test_what_a_loop_gave_is_told_by_its_last_iteration() -> None:
    nodes = loop(after=[N("Log", ["last"], ["y"], name="log")])
    seen = look(nodes, {"x": f32(4)}, ["y"], COUNT)
    assert causes(seen)[-1] == ("loop/body[3]/less", "1 minus 1 is 0")


def test_what_a_branch_gave_is_told_by_the_branch() -> None:
    branches = {
        "then_branch": body([N("Sub", ["x", "one"], ["d"], name="less")], [], [of("d")]),
        "else_branch": body([N("Identity", ["x"], ["e"])], [], [of("e")]),
    }
    nodes = [N("If", ["yes"], ["b"], name="if", **branches), N("Log", ["b"], ["y"], name="log")]
    seen = look(nodes, {"x": f32(2, 1)}, ["y"], {**ONE, "yes": np.array(True)})
    assert causes(seen) == [("if/then_branch/less", "1 minus 1 is 0")]


def test_a_slice_of_a_scan_is_told_by_what_made_the_whole() -> None:
    held = body(
        [N("Log", ["e"], ["l"], name="log"), N("Add", ["st", "e"], ["n"])],
        [of("st", shape=[2]), of("e", shape=[2])],
        [of("n", shape=[2]), of("l", shape=[2])],
    )
    nodes = [
        N("Sub", ["w", "rows"], ["m"], name="less"),
        N("Reshape", ["m", "shape"], ["r"]),
        N("Scan", ["x", "r"], ["end", "y"], name="scan", body=held, num_scan_inputs=1),
    ]
    held_back = {"rows": np.array([[0, 0], [0, 7], [0, 0]], np.float32), "shape": np.array([3, 2])}
    seen = look(nodes, {"x": f32(1, 2), "w": np.full((3, 2), 7, np.float32)}, ["y"], held_back)
    assert seen.first.node == "scan/body[1]/log"
    assert causes(seen) == [("less", "7 minus 7 is 0")]


def test_what_is_not_known_to_come_from_anywhere_is_told_as_it_came() -> None:
    held = body(
        [
            N("Cast", ["i"], ["f"], name="cast", to=FLOAT),
            N("Log", ["f"], ["l"], name="log"),
            N("Identity", ["c"], ["c2"]),
        ],
        [of("i", TensorProto.INT64, []), of("c", TensorProto.BOOL, []), of("s")],
        [of("c2", TensorProto.BOOL, []), of("s"), of("l")],
    )
    nodes = [N("Loop", ["count", "", "x"], ["last", "y"], name="loop", body=held)]
    seen = look(nodes, {"x": f32(1)}, ["y"], COUNT)
    assert causes(seen) == [(None, "i is 0 as loop/body[0] begins")]


def test_of_the_iterations_that_are_over_only_the_last_are_kept() -> None:
    held = body_scopes.Scopes()
    for number in range(5):
        held.enter(["s"], [np.full(8, number, np.float32)], ["d"])
        held.leave(["s"])
    kept = held.main.over
    assert [level.values["s"][0] for level in kept] == [3, 4]
    assert kept[0].before is None
    assert held._bytes == 2 * 32


def test_the_oldest_of_small_values_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_scopes, "BUDGET", 64)
    held = body_scopes.Scopes()
    for name in ("first", "second", "third"):
        held.remember(held.main, name, np.zeros(8, np.float32))
    assert set(held.main.values) == {"second", "third"}
