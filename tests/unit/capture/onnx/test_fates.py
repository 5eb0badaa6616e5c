"""Births in ONNX graphs and what becomes of them: escaped, damaging, absorbed; what enters, and literals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_doubles import NoSites, counters_of
from tests.onnx_engine import bare, model_of
from tests.unit.capture.onnx.looking import N, f32, look
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder
from whynan.floats import format_value

INF = np.inf
ZERO, ONE = np.zeros((), np.float32), np.ones((), np.float32)


def test_a_birth_is_its_node_value_and_element() -> None:
    seen = look(
        [N("Sub", ["x", "x"], ["d"], name="sub"), N("Div", ["d", "x"], ["q"], name="div"), N("Neg", ["q"], ["y"])],
        {"x": f32(1, 0, 2)},
        ["y"],
    )
    found = seen.first
    assert (seen.verdict, found.birth, found.op, found.node, found.value) == ("nonfinite", "invalid", "Div", "div", "q")
    assert (found.phase, found.element.index, found.element.count, found.element.total) == ("inference", (1,), 1, 3)
    assert [(o.name, o.index, o.value) for o in found.element.operands] == [("A", (1,), 0.0), ("B", (1,), 0.0)]
    assert [(r.kind, r.name, r.bad, r.total) for r in found.reaches] == [("output", "y", 1, 3)]


def test_a_nan_that_is_masked_is_absorbed() -> None:
    nodes = [
        N("Div", ["x", "x"], ["q"], name="div"),
        N("IsNaN", ["q"], ["lost"]),
        N("Where", ["lost", "zero", "q"], ["y"]),
    ]
    seen = look(nodes, {"x": f32(1, 0)}, ["y"], {"zero": ZERO})
    assert (seen.verdict, seen.first.fate, seen.first.op) == ("clean", "absorbed", "Div")


def test_the_same_without_the_mask_escapes() -> None:
    nodes = [N("Div", ["x", "x"], ["q"], name="div"), N("Where", ["no", "zero", "q"], ["y"])]
    seen = look(nodes, {"x": f32(1, 0)}, ["y"], {"zero": ZERO, "no": np.array(False)})
    assert (seen.verdict, seen.first.fate) == ("nonfinite", "escaped")


def test_of_elements_born_together_each_has_its_own_fate() -> None:
    nodes = [N("Div", ["x", "x"], ["q"], name="div"), N("Where", ["keep", "q", "zero"], ["y"])]
    seen = look(nodes, {"x": f32(0, 1, 0)}, ["y"], {"keep": np.array([False, True, True]), "zero": ZERO})
    (escaped,) = seen.findings.escaped
    assert (escaped.element.index, escaped.element.count) == ((2,), 2)


def test_a_nan_and_an_infinity_of_one_node_are_two_births() -> None:
    seen = look([N("Div", ["a", "b"], ["y"], name="div")], {"a": f32(1, 0), "b": f32(0, 0)}, ["y"])
    assert {(f.birth, f.element.index) for f in seen.findings.escaped} == {("pole", (0,)), ("invalid", (1,))}


def test_an_overflow_that_comes_out_right_is_absorbed() -> None:
    nodes = [N("Exp", ["x"], ["e"], name="exp"), N("Add", ["e", "one"], ["p"]), N("Reciprocal", ["p"], ["y"])]
    seen = look(nodes, {"x": f32(100, 0)}, ["y"], {"one": ONE})
    assert (seen.verdict, seen.first.fate, seen.first.birth) == ("clean", "absorbed", "overflow")


def test_an_overflow_that_comes_out_wrong_damages() -> None:
    nodes = [N("Exp", ["x"], ["e"], name="exp"), N("Div", ["e", "many"], ["d"]), N("Min", ["d", "most"], ["y"])]
    constants = {"many": np.array(1e10, np.float32), "most": np.array(1e35, np.float32)}
    seen = look(nodes, {"x": f32(100, 1)}, ["y"], constants)
    assert (seen.verdict, seen.first.op, seen.first.fate) == ("damaged", "Exp", "damaging")
    assert ("step", "Min gives 1e35, where 2.688e33 is the value in float64") in seen.chain


@pytest.mark.parametrize(
    ("node", "x", "what"),
    [
        (N("ReduceMax", ["l"], ["y"]), (1, -1, 2), "ReduceMax drops NaN"),
        (N("MaxPool", ["l3"], ["y"], kernel_shape=[2]), (-1, 1, 2), "MaxPool drops NaN"),
        (N("ArgMax", ["l"], ["y"]), (-1, 1, 2), "ArgMax makes 0 of NaN"),
        (N("Greater", ["l", "zero"], ["y"]), (-1, 1, 2), "Greater makes False of NaN"),
    ],
    ids=lambda v: getattr(v, "op_type", ""),
)
def test_what_leaves_a_nan_out_of_its_choice_damages_and_is_noted(
    node: object, x: tuple[float, ...], what: str
) -> None:
    nodes = [N("Log", ["x"], ["l"], name="log"), N("Reshape", ["l", "shape"], ["l3"]), node]
    seen = look(nodes, {"x": f32(*x)}, ["y"], {"zero": ZERO, "shape": np.array([1, 1, -1], np.int64)})
    assert np.isfinite(seen.outputs["y"]).all()
    assert (seen.verdict, seen.first.op, seen.first.fate) == ("damaged", "Log", "damaging")
    assert ("step", what) in seen.chain


EXP, LOG = N("Exp", ["x"], ["e"], name="exp"), N("Log", ["x"], ["l"], name="log")
TWO = {"k": np.array([2], np.int64), "scale": ONE, "zero": np.array(0, np.uint8)}


@pytest.mark.parametrize(
    ("node", "x"),
    [
        (N("TopK", ["e", "k"], ["v", "y"]), (100, 1, 2)),
        (N("TopK", ["e", "k"], ["v", "y"], largest=0), (100, 1, 2)),
        (N("TopK", ["e", "k"], ["v", "y"]), (100, 1, 1)),
        (N("ArgMax", ["e"], ["y"]), (1, 100, 2)),
        (N("ArgMin", ["e"], ["y"]), (1, 100, 2)),
        (N("QuantizeLinear", ["e", "scale", "zero"], ["y"]), (1, 100, 2)),
    ],
    ids=["largest", "smallest", "equal", "argmax", "argmin", "saturated"],
)
def test_an_index_that_float64_has_too_is_no_damage(node: object, x: tuple[float, ...]) -> None:
    seen = look([EXP, node], {"x": f32(*x)}, ["y"], TWO)
    assert (seen.verdict, seen.first.op, seen.first.fate) == ("clean", "Exp", "absorbed")


@pytest.mark.parametrize(
    ("node", "what"),
    [
        (N("TopK", ["e", "k"], ["v", "y"]), "TopK gives 0, where 2 is the value in float64"),
        (N("ArgMax", ["e"], ["y"]), "ArgMax gives 0, where 2 is the value in float64"),
    ],
    ids=["topk", "argmax"],
)
def test_an_index_that_float64_has_not_is_damage(node: object, what: str) -> None:
    seen = look([EXP, node], {"x": f32(100, 1, 200)}, ["y"], TWO)
    assert (seen.verdict, seen.first.fate) == ("damaged", "damaging")
    assert ("step", what) in seen.chain


def test_a_nan_that_float64_has_not_is_judged_by_float64() -> None:
    nodes = [EXP, N("Div", ["e", "e"], ["q"]), N("Mul", ["q", "c"], ["m"]), N("ArgMax", ["m"], ["y"])]
    right = look(nodes, {"x": f32(100, 1, 2)}, ["y"], {"c": f32(5, 1, 3)})
    wrong = look(nodes, {"x": f32(100, 1, 2)}, ["y"], {"c": f32(1, 5, 3)})
    assert (right.verdict, wrong.verdict) == ("clean", "damaged")


def test_the_index_of_a_row_of_nothing_but_nan_means_nothing() -> None:
    seen = look([LOG, N("ArgMax", ["l"], ["y"])], {"x": f32(-1, -2, -3)}, ["y"])
    assert (seen.verdict, seen.first.fate) == ("damaged", "damaging")


def test_an_integer_made_of_a_nan_is_told() -> None:
    seen = look([LOG, N("Cast", ["l"], ["y"], to=6)], {"x": f32(1, -1)}, ["y"])
    assert (seen.verdict, [(r.name, r.bad) for r in seen.first.reaches]) == ("damaged", [("y", 1)])
    assert ("step", f"Cast makes {format_value(int(seen.outputs['y'][1]), digits=4)} of NaN") in seen.chain


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_a_nan_that_was_taken_for_a_place_damages_what_was_read_there(mode: str, padding: str) -> None:
    nodes = [LOG, N("GridSample", ["image", "l"], ["y"], mode=mode, padding_mode=padding)]
    grid = np.ones((1, 1, 2, 2), np.float32)
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    healthy = look(nodes, {"x": grid, "image": image}, ["y"], opset=20)
    grid[0, 0, 0, 0] = -1
    seen = look(nodes, {"x": grid, "image": image}, ["y"], opset=20)
    assert np.isfinite(seen.outputs["y"]).all()
    assert (healthy.verdict, seen.verdict) == ("clean", "damaged")
    assert [(r.name, r.bad) for r in seen.first.reaches] == [("y", 1)]
    assert ("step", "GridSample takes NaN for a place") in seen.chain


def test_a_boolean_that_was_made_of_a_nan_damages_what_it_selects() -> None:
    nodes = [
        N("Log", ["x"], ["l"], name="log"),
        N("Greater", ["l", "zero"], ["more"]),
        N("Where", ["more", "x", "other"], ["y"]),
    ]
    seen = look(nodes, {"x": f32(-1, 2), "other": f32(7, 8)}, ["y"], {"zero": ZERO})
    assert (seen.verdict, [(r.name, r.bad) for r in seen.first.reaches]) == ("damaged", [("y", 1)])


def test_a_nan_that_is_fed_has_entered_at_its_first_reader() -> None:
    nodes = [N("Neg", ["x"], ["n"], name="first"), N("Exp", ["n"], ["y"], name="second")]
    seen = look(nodes, {"x": f32(1, np.nan)}, ["y"])
    (found,) = seen.findings.escaped
    assert (found.birth, found.op, found.node, found.value) == ("entered", None, "first", "x")
    assert seen.first.message == "input x holds NaN at [1]: 1 of its 2 elements"


def test_a_nan_that_is_fed_and_left_out_is_absorbed() -> None:
    seen = look([N("Slice", ["x", "from", "to"], ["y"])], {"x": f32(1, np.nan)}, ["y"], _slice(0, 1))
    assert (seen.verdict, seen.first.fate) == ("clean", "absorbed")


def test_a_nan_among_weights_has_entered() -> None:
    seen = look([N("Mul", ["x", "w"], ["y"])], {"x": f32(1, 2)}, ["y"], {"w": f32(1, np.nan)})
    assert (seen.first.birth, seen.first.message) == (
        "entered",
        "initializer w holds NaN at [1]: 1 of its 2 elements",
    )


def test_infinities_that_are_handed_in_or_written_merely_leave() -> None:
    nodes = [N("Add", ["x", "mask"], ["s"]), N("Mul", ["s", "s"], ["y"])]
    seen = look(nodes, {"x": f32(1, INF, 2)}, ["s", "y"], {"mask": f32(-INF, 0, 0)})
    assert (seen.verdict, seen.findings.absorbed) == ("clean", ())


def test_a_nan_made_of_literals_is_a_birth_and_they_its_cause() -> None:
    nodes = [N("Add", ["x", "mask"], ["s"], name="add"), N("Softmax", ["s"], ["y"], name="softmax", axis=-1)]
    seen = look(nodes, {"x": np.ones((2, 2), np.float32)}, ["y"], {"mask": np.array([[-INF] * 2, [0, -INF]], "f4")})
    assert (seen.verdict, seen.first.rule, seen.first.element.index) == ("nonfinite", "WN501", (0, 0))
    assert ("cause", "initializer mask holds -Inf at [0, 0]") in seen.chain


def test_masks_of_the_least_number_are_literals() -> None:
    least = float(np.finfo(np.float32).min)
    nodes = [N("Add", ["x", "mask"], ["s"], name="add"), N("Identity", ["s"], ["y"])]
    seen = look(nodes, {"x": f32(-1e35, 1)}, ["y"], {"mask": f32(least, 0)})
    assert np.isinf(seen.outputs["y"]).any()
    assert seen.verdict == "clean"


def test_an_overflow_of_ordinary_numbers_in_the_same_node_is_none() -> None:
    seen = look([N("Add", ["x", "b"], ["y"], name="add")], {"x": f32(3e38, 1)}, ["y"], {"b": f32(3e38, 0)})
    assert (seen.verdict, seen.first.birth) == ("nonfinite", "overflow")


def test_a_nan_made_of_an_infinity_that_was_born_is_a_step() -> None:
    nodes = [N("Exp", ["x"], ["e"], name="exp"), N("Sub", ["e", "e"], ["y"], name="sub")]
    seen = look(nodes, {"x": f32(100, 1)}, ["y"])
    (found,) = seen.findings.escaped
    assert (found.op, found.birth) == ("Exp", "overflow")


def test_an_infinity_that_a_nan_only_hides_is_carried_on_beside_it() -> None:
    nodes = [N("Div", ["z", "z"], ["q"]), N("Exp", ["x"], ["e"]), N("Add", ["q", "e"], ["y"])]
    seen = look(nodes, {"z": f32(0, 1), "x": f32(100, 1)}, ["y"])
    assert {(f.op, f.birth) for f in seen.findings.escaped} == {("Div", "invalid"), ("Exp", "overflow")}


def test_a_constant_node_writes_a_literal() -> None:
    nodes = [N("ConstantOfShape", ["n"], ["c"], value=_tensor(-INF)), N("Add", ["x", "c"], ["y"])]
    seen = look(nodes, {"x": f32(1, 2)}, ["y"], {"n": np.array([2], np.int64)})
    assert np.isinf(seen.outputs["y"]).all()
    assert seen.verdict == "clean"


def test_a_run_that_breaks_off_reports_what_nothing_had_read() -> None:
    model = model_of([N("Log", ["x"], ["l"], name="log")], {"x": f32(-1, 1)}, ["l"])
    births = BirthObserver(Recorder(), NoSites(), ranges=False, count=counters_of)

    class Broken:
        """An engine's observer that hears no end."""

        def __getattr__(self, name: str) -> object:
            return (lambda *_: None) if name == "on_output" else getattr(births, name)

    from tests.onnx_engine import run
    from whynan.analysis import judge_births

    run(model, {"x": f32(-1, 1)}, Broken())  # type: ignore[arg-type]
    trace = births.end()
    found = judge_births(trace)
    assert not trace.fatal_seen
    assert (found.verdict, found.escaped[0].node) == ("nonfinite", "log")


def test_looking_changes_nothing() -> None:
    nodes = [N("Div", ["x", "x"], ["q"]), N("Mul", ["q", "q"], ["y"])]
    feeds = {"x": f32(0, 3)}
    seen = look(nodes, feeds, ["y"])
    assert seen.outputs["y"].tobytes() == bare(model_of(nodes, feeds, ["y"]), feeds)["y"].tobytes()


def _slice(start: int, stop: int) -> dict[str, np.ndarray]:
    return {"from": np.array([start], np.int64), "to": np.array([stop], np.int64)}


def _tensor(value: float) -> object:
    from onnx import TensorProto, helper

    return helper.make_tensor("value", TensorProto.FLOAT, [1], [value])
