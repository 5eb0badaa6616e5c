"""An error is introduced where B makes something else of A's operands; rounding is none, and a twin of it is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.unit.compare.models import mlp, model, numbers, ran, renamed
from whynan.compare.alignment import Aligner
from whynan.compare.introduced import Search
from whynan.compare.stretches import Culprit


def first(a: onnx.ModelProto, b: onnx.ModelProto, x: object) -> Culprit | None:
    """The first culprit of two models on one input."""
    one, other = ran(a, x), ran(b, x)
    outputs = dict(zip(other.side.output_values, one.side.output_values, strict=True))
    search = Search(one, other, Aligner(one, other, {"x": "x"}, outputs).align())
    found = next(search.culprits(), None)
    return None if found is None else search.localised(found)


def test_a_model_agrees_with_itself() -> None:
    assert first(mlp(), mlp(), numbers(4, 16)) is None
    assert first(mlp(), renamed(mlp()), numbers(4, 16)) is None


@pytest.mark.parametrize("disguise", [False, True])
@pytest.mark.parametrize(
    ("changed", "node", "sort"),
    [(mlp(epsilon=1e-3), "norm", "meaning"), (mlp(scale=1.001), "second", "meaning")],
)
def test_a_change_is_found_at_its_node(changed: onnx.ModelProto, node: str, sort: str, disguise: bool) -> None:
    place = next(n for n, one in enumerate(changed.graph.node) if one.name == node)
    found = first(mlp(), renamed(changed) if disguise else changed, numbers(4, 16))
    assert found is not None
    assert (found.operation.name, found.sort) == (f"n{place}" if disguise else node, sort)


def test_what_came_with_the_operands_is_not_introduced() -> None:
    found = first(mlp(), mlp(epsilon=1e-3), numbers(4, 16))
    assert found is not None
    assert found.propagated_abs == 0
    assert found.max_abs > 1e-4


def sums(terms: int, *, blocks: int = 1, weight: float = 0.0, cancelling: bool = False) -> onnx.ModelProto:
    """A long sum, in one product or as the sum of several; a further weight may be off."""
    draws = np.random.default_rng(1)
    whole = draws.normal(size=(terms, 4)).astype(np.float32)
    whole[0, 0] += weight
    if cancelling:
        whole -= whole.mean(0)
    if blocks == 1:
        return model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": whole}, [2, terms])
    nodes, weights = (
        [helper.make_node("Split", ["x"], [f"x{n}" for n in range(blocks)], axis=1, num_outputs=blocks)],
        {},
    )
    for n, part in enumerate(np.split(whole, blocks)):
        weights[f"w{n}"] = part
        nodes.append(helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"p{n}"]))
    nodes.append(helper.make_node("Sum", [f"p{n}" for n in range(blocks)], ["y"]))
    return model(nodes, weights, [2, terms])


def test_the_order_of_a_long_sum_is_rounding() -> None:
    x = 100 + numbers(2, 4096)
    assert first(sums(4096), sums(4096, blocks=64), x) is None


def test_a_weight_in_a_long_sum_is_none() -> None:
    found = first(sums(4096), sums(4096, weight=0.01), 100 + numbers(2, 4096))
    assert found is not None


def chain(first_op: list[onnx.NodeProto], weights: dict[str, object] | None = None) -> onnx.ModelProto:
    return model(first_op, weights or {}, [4, 16])


def test_cancellation_on_which_both_are_wrong_is_rounding() -> None:
    x = 1e4 + numbers(2, 4096)
    one, other = sums(4096, cancelling=True), sums(4096, blocks=64, cancelling=True)
    a, b = (ran(made, x).value("y") for made in (one, other))
    assert a is not None
    assert b is not None
    # of these numbers hardly a digit is right
    assert float(np.abs(a - b).max()) > 1e-3 * float(np.abs(a).max())
    assert first(one, other, x) is None


def test_logits_of_ten_thousand_are_rounding() -> None:
    scaled = {"s": np.float32(1e4)}
    nodes = [helper.make_node("Mul", ["x", "s"], ["v"]), helper.make_node("LogSoftmax", ["v"], ["y"], axis=-1)]
    parts = [
        helper.make_node("Mul", ["x", "s"], ["v"]),
        helper.make_node("ReduceLogSumExp", ["v", "last"], ["sum"]),
        helper.make_node("Sub", ["v", "sum"], ["y"]),
    ]
    last = {"last": np.array([-1], np.int64)}
    assert first(chain(nodes, dict(scaled)), chain(parts, {**scaled, **last}), numbers(4, 16) / 1e3) is None


@pytest.mark.parametrize(("kept", "sort"), [("zero", None), ("low", "meaning")])
def test_a_mask_of_huge_numbers_that_is_lost_is_no_rounding(kept: str, sort: str | None) -> None:
    """Added to every score, the number of a mask leaves nothing of them: their softmax is all rounding."""
    weights = {
        "keep": np.arange(16) < 12,
        "low": np.float32(np.finfo(np.float32).min),
        "zero": np.float32(0),
    }
    masked = [helper.make_node("Where", ["keep", "x", "low"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    added = [
        helper.make_node("Where", ["keep", kept, "low"], ["mask"]),
        helper.make_node("Add", ["x", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    for one, other in ((masked, added), (added, masked)):
        found = first(chain(one, dict(weights)), chain(other, dict(weights)), numbers(4, 16))
        assert (None if found is None else found.sort) == sort


def test_what_moves_elements_is_at_fault_before_what_gives_them_a_shape() -> None:
    shape = {"shape": np.array([8, 8], np.int64)}
    one = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    other = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0], name="turn"),
        helper.make_node("Reshape", ["t", "shape"], ["y"], name="shaped"),
    ]
    found = first(chain(one, dict(shape)), chain(other, dict(shape)), numbers(4, 16))
    assert found is not None
    assert found.operation.name == "turn"


def test_one_cast_to_float16_is_found() -> None:
    plain = mlp()
    cast = onnx.ModelProto()
    cast.CopyFrom(plain)
    node = next(n for n in cast.graph.node if n.name == "second")
    at = list(cast.graph.node).index(node)
    node.input[0] = "back"
    cast.graph.node.insert(at, helper.make_node("Cast", ["active"], ["half"], name="down", to=TensorProto.FLOAT16))
    cast.graph.node.insert(at + 1, helper.make_node("Cast", ["half"], ["back"], name="up", to=TensorProto.FLOAT))
    found = first(plain, cast, numbers(4, 16))
    assert found is not None
    assert "down" in {o.name for o in found.stretch.operations}
    assert found.operation.name == "down"


@pytest.mark.parametrize("before", ["normal", "active"])
def test_a_node_that_the_other_has_none_of_is_found_by_leaving_it_out(before: str) -> None:
    plain = mlp()
    scaled = onnx.ModelProto()
    scaled.CopyFrom(plain)
    node = next(n for n in scaled.graph.node if before in n.input)
    at = list(scaled.graph.node).index(node)
    node.input[list(node.input).index(before)] = "more"
    scaled.graph.node.insert(at, helper.make_node("Mul", [before, "factor"], ["more"], name="extra"))
    scaled.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1.02, np.float32), "factor"))
    found = first(plain, renamed(scaled), numbers(4, 16))
    assert found is not None
    assert found.operation.op == "Mul"
