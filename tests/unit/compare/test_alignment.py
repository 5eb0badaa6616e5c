"""Values are aligned by name, topology and numbers; names that lie are not believed."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
from onnx import helper

from tests.unit.compare.models import mlp, model, numbers, ran, renamed
from whynan.compare.alignment import Aligner, Alignment
from whynan.compare.stretches import SideRun


def aligned(a: SideRun, b: SideRun) -> Alignment:
    outputs = dict(zip(b.side.output_values, a.side.output_values, strict=True))
    return Aligner(a, b, {"x": "x"}, outputs).align()


def test_values_of_one_name_are_aligned() -> None:
    x = numbers(4, 16)
    found = aligned(ran(mlp(), x), ran(mlp(), x))
    assert found.counts(found.pairs) == {"input": 1, "name": 5}


def test_renamed_values_are_aligned_by_what_makes_them() -> None:
    x = numbers(4, 16)
    found = aligned(ran(mlp(), x), ran(renamed(mlp()), x))
    assert len(found.pairs) == 6
    assert {way for there, (_, way) in found.pairs.items() if there.startswith("t")} <= {"topology", "fingerprint"}


def test_a_fused_operation_is_aligned_at_its_border() -> None:
    parts = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Mul", ["x", "s"], ["swish"]),
        helper.make_node("Relu", ["swish"], ["y"]),
    ]
    fused = [
        helper.make_node("Relu", ["other"], ["y"]),
    ]
    fused.insert(0, helper.make_node("QuickGelu", ["x"], ["other"], domain="com.microsoft", alpha=1.0))
    whole = model(fused, {}, [3, 5])
    whole.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = numbers(3, 5)
    found = aligned(ran(model(parts, {}, [3, 5]), x), ran(whole, x))
    assert found.pairs["other"] == ("swish", "fingerprint")


def swapped() -> onnx.ModelProto:
    """A model in which two values have each other's names."""
    nodes = [
        helper.make_node("Exp", ["x"], ["two"]),
        helper.make_node("Neg", ["x"], ["one"]),
        helper.make_node("Add", ["two", "one"], ["y"]),
    ]
    return model(nodes, {}, [3, 5])


def test_a_name_is_not_believed_where_another_value_has_its_numbers() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["one"]),
        helper.make_node("Neg", ["x"], ["two"]),
        helper.make_node("Add", ["one", "two"], ["y"]),
    ]
    x = numbers(3, 5)
    found = aligned(ran(model(nodes, {}, [3, 5]), x), ran(swapped(), x))
    assert found.pairs["two"][0] == "one"
    assert found.pairs["one"][0] == "two"


def test_values_of_other_shapes_are_no_pair() -> None:
    x = numbers(3, 5)
    flat = [helper.make_node("Transpose", ["x"], ["v"], perm=[1, 0]), helper.make_node("Exp", ["v"], ["y"])]
    plain = [helper.make_node("Identity", ["x"], ["v"]), helper.make_node("Exp", ["v"], ["y"])]
    found = aligned(ran(model(plain, {}, [3, 5]), x), ran(model(flat, {}, [3, 5]), x))
    assert "v" not in found.pairs


def residual(names: str, adding: str) -> onnx.ModelProto:
    """A sum that addends hardly move, each of which is made of the sum before it."""
    values = [f"{names}{n}" for n in range(7)]
    nodes = [helper.make_node("Identity", ["x"], [values[0]])]
    for number, (before, after) in enumerate(itertools.pairwise(values)):
        nodes += [
            helper.make_node("Softmax", [before], [f"{after}s"], axis=number % 2),
            helper.make_node("Mul", [f"{after}s", "tiny"], [f"{after}m"]),
            helper.make_node(adding, [before, f"{after}m"], [after]),
        ]
    nodes.append(helper.make_node("Exp", [values[-1]], ["y"]))
    return model(nodes, {"tiny": np.float32(2e-6)}, [16, 16])


def test_values_that_are_nearly_the_same_are_aligned_in_the_order_in_which_they_are_made() -> None:
    x = numbers(16, 16)
    found = aligned(ran(residual("one", "Add"), x), ran(residual("other", "Sum"), x + np.float32(1e-6)))
    pairs = {there: here for there, (here, _) in found.pairs.items() if there.startswith("other")}
    assert all(there.removeprefix("other") == here.removeprefix("one") for there, here in pairs.items())
    assert {f"other{n}s" for n in range(1, 7)} <= set(pairs)
