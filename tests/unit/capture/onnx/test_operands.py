"""Which elements of the operands an output element depends on: checked against what a change of them changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.onnx_engine import bare, model_of
from tests.unit.capture.onnx.looking import N, f32, look
from whynan.capture.onnx.execution import Node
from whynan.capture.onnx.provenance.operands import element_operands, kind_of, locate
from whynan.records import Operand


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(0, 1, shape).astype(np.float32)


AXES = np.array([1], np.int64)
CASES: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("MatMul", [_random(2, 3), _random(3, 4)], {}, 18),
    ("MatMul", [_random(3), _random(3, 4)], {}, 18),
    ("MatMul", [_random(2, 3), _random(3)], {}, 18),
    ("MatMul", [_random(5, 2, 3), _random(3, 4)], {}, 18),
    ("MatMul", [_random(5, 2, 3), _random(5, 3, 4)], {}, 18),
    ("MatMul", [_random(3), _random(5, 3, 4)], {}, 18),
    ("MatMul", [_random(5, 2, 3), _random(3)], {}, 18),
    ("Gemm", [_random(3, 2), _random(4, 3), _random(4)], {"transA": 1, "transB": 1}, 18),
    ("Gemm", [_random(2, 3), _random(3, 4), _random(2, 1)], {}, 18),
    ("ReduceSum", [_random(2, 3, 4), AXES], {"keepdims": 0}, 18),
    ("ReduceMean", [_random(2, 3, 4), AXES], {"keepdims": 1}, 18),
    ("ReduceMean", [_random(2, 3, 4)], {"axes": [0, 2]}, 13),
    ("ReduceSum", [_random(2, 3)], {}, 18),
    ("Softmax", [_random(2, 3, 4)], {"axis": 1}, 18),
    ("Softmax", [_random(2, 3, 4)], {"axis": 1}, 11),
    ("CumSum", [_random(2, 3), np.array(1)], {}, 18),
    ("Conv", [_random(1, 4, 7, 6), _random(6, 2, 3, 2), _random(6)], {"group": 2, "strides": [2, 1]}, 18),
    (
        "Conv",
        [_random(1, 1, 6, 6), _random(1, 1, 3, 3)],
        {"pads": [2, 1, 0, 2], "dilations": [2, 1], "strides": [1, 2]},
        18,
    ),
    ("AveragePool", [_random(1, 2, 5, 5)], {"kernel_shape": [2, 3], "strides": [2, 1]}, 18),
    ("GlobalAveragePool", [_random(2, 3, 2, 2)], {}, 18),
    ("LayerNormalization", [_random(2, 3, 4), _random(4)], {"axis": -1}, 18),
    ("InstanceNormalization", [_random(2, 3, 4), _random(3), _random(3)], {}, 18),
    ("BatchNormalization", [_random(2, 3, 4), _random(3), _random(3), _random(3), abs(_random(3))], {}, 18),
    ("Add", [_random(2, 3), _random(3)], {}, 18),
    ("Where", [np.array([[True], [False]]), _random(2, 3), _random(3)], {}, 18),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {[v.shape for v in c[1]]} {c[2]}")
def test_only_what_is_located_changes_the_element(case: tuple[str, list[Any], dict[str, Any], int]) -> None:
    op, values, attributes, opset = case
    names = [f"x{i}" for i in range(len(values))]
    proto = helper.make_node(op, names, ["y"], name="n", **attributes)
    node = Node(0, "n", op, "", tuple(names), ("y",), proto, opset=opset)
    feeds = dict(zip(names, values, strict=True))
    model = model_of([proto], feeds, ["y"], opset=opset)
    out = bare(model, feeds)["y"]
    index = tuple(int(s) - 1 for s in out.shape)
    for position, value in enumerate(values):
        if value.dtype != np.float32:
            continue
        place, region = locate(node, values, position, index)
        # the located elements, as a view of a copy that is marked through it
        marked = np.zeros(value.shape, np.float32)
        given = [*values]
        given[position] = marked
        if region is None:
            assert place is not None
            marked[place] = 1
        else:
            seen = locate(node, given, position, index)[1]
            assert seen is not None
            seen[...] = 1
        else_changed = {**feeds, names[position]: np.where(marked != 0, value, value + 3).astype(np.float32)}
        assert bare(model, else_changed)["y"][index] == pytest.approx(out[index], rel=1e-5, abs=1e-6)
        if op != "Where":
            changed = {**feeds, names[position]: np.where(marked != 0, value * 1.5 + 3, value).astype(np.float32)}
            if op not in ("Softmax", "LayerNormalization", "InstanceNormalization") or position:
                assert bare(model, changed)["y"][index] != out[index]


def test_operands_of_a_row_tell_its_range_and_what_decides() -> None:
    seen = look([N("Softmax", ["x"], ["y"], name="s")], {"x": f32(-1, np.inf, 2)}, ["y"])
    (operand,) = seen.first.element.operands
    assert (operand.name, operand.index, operand.value, operand.min, operand.max) == ("input", None, np.inf, -1, np.inf)


def test_an_epsilon_is_an_operand_with_its_default() -> None:
    proto = helper.make_node("LayerNormalization", ["x", "s"], ["y"])
    node = Node(0, "", "LayerNormalization", "", ("x", "s"), ("y",), proto, opset=18)
    found = element_operands(node, [np.ones((1, 2), np.float32), np.ones(2, np.float32)], (0, 0))
    assert [(o.name, o.value) for o in found if o.dtype is None] == [("epsilon", 1e-5)]


def test_a_pole_is_told_from_an_overflow() -> None:
    zero, one = Operand(name="B", value=0.0), Operand(name="B", value=1e-40)
    assert kind_of("Div", np.inf, (zero,)) == "pole"
    assert kind_of("Div", np.inf, (one,)) == "overflow"
    assert kind_of("Div", np.nan, (zero,)) == "invalid"
