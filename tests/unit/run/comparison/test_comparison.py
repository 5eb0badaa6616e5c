"""What is not an error of numbers is said: inputs in order, casts, outputs in another order, training mode."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from syrupy.assertion import SnapshotAssertion
from torch import nn

import whynan
from tests.unit.compare.models import mlp, model, numbers, renamed
from whynan.errors import UsageError
from whynan.records import ExitStatus, Run
from whynan.traces.writer import TraceWriter


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are relative, so that messages are the same everywhere."""
    monkeypatch.chdir(tmp_path)


def saved(made: onnx.ModelProto, name: str) -> str:
    onnx.save(made, name)
    return name


def two(first: str, second: str, *, other_input: str = "x") -> onnx.ModelProto:
    """A model with two outputs, in an order."""
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["x"], ["n"])]
    made = model(nodes, {}, [3, 5], (first, second))
    for node in made.graph.node:
        node.input[:] = [other_input]
    made.graph.input[0].name = other_input
    return made


def test_one_model_agrees_with_itself_and_its_disguise() -> None:
    a, b = saved(mlp(), "a.onnx"), saved(renamed(mlp()), "b.onnx")
    report = whynan.diff(a, b, {"x": numbers(4, 16)})
    assert report.verdict == "clean"
    assert report.run.exit_status.whynan == 0
    assert report.outputs[0].max_abs == 0


def test_a_change_is_told_with_both_sides() -> None:
    a, b = saved(mlp(), "a.onnx"), saved(mlp(epsilon=1e-3), "b.onnx")
    report = whynan.diff(a, b, {"x": numbers(4, 16)})
    finding = report.findings[0]
    assert (report.verdict, finding.op, finding.node, finding.value) == (
        "divergent",
        "LayerNormalization",
        "norm",
        "normal",
    )
    assert finding.divergence is not None
    assert finding.divergence.attributions[0].source == "model"
    assert finding.divergence.attributions[0].evidence.endswith("has epsilon 0.001, that of A 1e-05")
    assert len(finding.divergence.growth) <= 10
    assert finding.divergence.growth[-1].value == "y"


def test_outputs_within_what_is_asked_for_agree() -> None:
    a, b = saved(mlp(), "a.onnx"), saved(mlp(epsilon=1e-3), "b.onnx")
    assert whynan.diff(a, b, {"x": numbers(4, 16)}, rtol=0.5).verdict == "clean"
    assert whynan.diff(a, b, {"x": numbers(4, 16)}, rtol=1e-9).verdict == "divergent"


@pytest.mark.parametrize("asked", [{}, {"rtol": 0.1}])
def test_an_infinity_and_the_largest_number_do_not_agree(asked: dict[str, float]) -> None:
    whole = saved(model([helper.make_node("Exp", ["x"], ["y"], name="exp")], {}, [3]), "a.onnx")
    nodes = [helper.make_node("Exp", ["x"], ["e"], name="exp"), helper.make_node("Clip", ["e", "", "most"], ["y"])]
    cut = saved(model(nodes, {"most": np.float32(3e38)}, [3]), "b.onnx")
    for a, b in ((whole, cut), (cut, whole)):
        assert whynan.diff(a, b, {"x": np.array([1, 2, 100], np.float32)}, **asked).verdict == "divergent"


def test_outputs_in_another_order_are_paired_by_their_numbers() -> None:
    first, other = two("e", "n"), renamed(two("n", "e"))
    for value, name in zip(other.graph.output, ("out1", "out2"), strict=True):
        for node in other.graph.node:
            node.output[:] = [name if output == value.name else output for output in node.output]
        value.name = name
    report = whynan.diff(saved(first, "a.onnx"), saved(other, "b.onnx"), {"x": numbers(3, 5)})
    assert report.verdict == "clean"
    assert any("another order" in note for note in report.coverage.notes)


def test_a_missing_output_is_a_note() -> None:
    lacking = two("e", "n")
    del lacking.graph.output[1]
    report = whynan.diff(saved(two("e", "n"), "a.onnx"), saved(lacking, "b.onnx"), {"x": numbers(3, 5)})
    assert report.verdict == "clean"
    assert "the output n of A has no partner in B" in report.coverage.notes


def test_inputs_of_other_names_are_paired_in_order_and_cast() -> None:
    a, b = saved(two("e", "n"), "a.onnx"), saved(two("e", "n", other_input="data"), "b.onnx")
    report = whynan.diff(a, b, {"x": numbers(3, 5).astype(np.float64)})
    assert report.verdict == "clean"
    assert "inputs were paired in their order: data of B is x of A" in report.coverage.notes
    assert any("was cast" in note for note in report.coverage.notes)


class Net(nn.Module):
    """A module that is another one in training."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop, self.norm = nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.drop(self.linear(x)))


def test_a_module_left_in_training_is_compared_in_evaluation_and_stays_as_it_was() -> None:
    torch.manual_seed(0)
    module, x = Net(), torch.randn(5, 4)
    torch.export.save(torch.export.export(module.eval(), (x,)), "net.pt2")
    module.train()
    report = whynan.diff(module, "net.pt2", [x])
    assert report.verdict == "clean"
    assert any("drop (Dropout), norm (BatchNorm1d)" in note for note in report.coverage.notes)
    assert module.training


class Starred(nn.Module):
    """A module that takes as many tensors as it is given."""

    def forward(self, x: torch.Tensor, *more: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return torch.stack([x * scale, *more]).sum(0)


class Placed(nn.Module):
    """A module that takes its tensors by their place."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, /) -> torch.Tensor:
        return x * 2 + y


@pytest.mark.breadth
@pytest.mark.parametrize(("module", "count"), [(Starred().eval(), 1), (Starred().eval(), 3), (Placed().eval(), 2)])
def test_inputs_by_place_are_those_of_the_model(module: nn.Module, count: int) -> None:
    given = tuple(torch.randn(2, 3) for _ in range(count))
    names = [f"in{number}" for number in range(count)]
    torch.onnx.export(module, given, "placed.onnx", input_names=names, verbose=False, external_data=False)
    assert whynan.diff(module, "placed.onnx", list(given)).verdict == "clean"
    assert whynan.diff("placed.onnx", module, dict(zip(names, given, strict=True))).verdict == "clean"


@pytest.mark.process
def test_nan_on_both_sides_is_led_back_to_its_birth() -> None:
    nodes = [helper.make_node("Log", ["x"], ["l"], name="log"), helper.make_node("Neg", ["l"], ["y"], name="neg")]
    name = saved(model(nodes, {}, [3]), "a.onnx")
    report = whynan.diff(name, saved(model(nodes, {}, [3]), "b.onnx"), {"x": np.float32([-1, 1, 2])})
    assert report.verdict == "nonfinite"
    assert report.findings[0].node == "log"


def loop(scale: float, name: str) -> str:
    """A model whose Loop multiplies by a number each time."""
    values = [helper.make_tensor_value_info(n, t, s) for n, t, s in (
        ("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("s", TensorProto.FLOAT, [3])
    )]  # fmt: skip
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "scale"], ["scaled"], name="scale_state"),
            helper.make_node("Add", ["scaled", "x"], ["next"], name="add_input"),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        values,
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="next")],
        [onnx.numpy_helper.from_array(np.full(3, scale, np.float32), "scale")],
    )
    nodes = [
        helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body),
    ]
    return saved(model(nodes, {"n": np.int64(4)}, [3]), name)


def test_a_change_in_a_loop_is_found_at_the_inner_node() -> None:
    report = whynan.diff(loop(0.5, "a.onnx"), loop(0.51, "b.onnx"), {"x": np.float32([1, 2, 3])})
    assert report.findings[0].node == "loop/body[0]/scale_state"
    assert whynan.diff(loop(0.5, "a.onnx"), loop(0.5, "b.onnx"), {"x": np.float32([1, 2, 3])}).verdict == "clean"


def test_a_sequence_is_handed_on_in_another_arithmetic() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "one"], ["parts"], axis=0),
        helper.make_node("ConcatFromSequence", ["parts"], ["joined"], axis=1),
        helper.make_node("Exp", ["joined"], ["y"]),
    ]
    a = saved(model(nodes, {"one": np.int64(1)}, [3, 5]), "a.onnx")
    for dtype in ("fp16", "fp64"):
        assert whynan.diff(a, None, {"x": numbers(3, 5)}, b_dtype=dtype).verdict == "clean"


def test_an_output_of_another_shape_is_a_note() -> None:
    a = saved(model([helper.make_node("Flatten", ["x"], ["y"])], {}, [3, 5]), "a.onnx")
    b = saved(model([helper.make_node("Flatten", ["x"], ["y"], axis=0)], {}, [3, 5]), "b.onnx")
    notes = whynan.diff(a, b, {"x": numbers(3, 5)}).coverage.notes
    assert "the output y of B has the shape [1, 15], and y of A [3, 5]" in notes


def test_nodes_in_another_order_than_that_of_execution_are_put_in_order() -> None:
    a, turned = saved(mlp(), "a.onnx"), mlp()
    nodes = list(turned.graph.node)
    del turned.graph.node[:]
    turned.graph.node.extend(reversed(nodes))
    assert whynan.diff(a, saved(turned, "b.onnx"), {"x": numbers(4, 16)}).verdict == "clean"


def test_what_is_computed_with_eight_bits_is_told_as_such() -> None:
    scale, zero = np.float32(0.05), np.int8(0)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="dequantize"),
        helper.make_node("Exp", ["d"], ["y"]),
    ]
    b = saved(model(nodes, {"scale": scale, "zero": zero}, [3, 5]), "b.onnx")
    a = saved(model([helper.make_node("Exp", ["x"], ["y"])], {}, [3, 5]), "a.onnx")
    finding = whynan.diff(a, b, {"x": numbers(3, 5)}).findings[0]
    assert finding.divergence is not None
    assert finding.divergence.attributions[0].source == "precision"


def test_what_is_done_in_place_is_no_change_of_what_was_read_before() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()
            z = y * 2
            y.add_(1)
            return z - y

    module, x = InPlace().eval(), torch.randn(2, 3)
    torch.onnx.export(module, (x,), "place.onnx", verbose=False, external_data=False)
    assert whynan.diff(module, "place.onnx", [x]).verdict == "clean"


def refused(*arguments: object, **named: object) -> str:
    with pytest.raises(UsageError) as caught:
        whynan.diff(*arguments, **named)  # pyright: ignore[reportArgumentType]
    return str(caught.value)


def test_what_cannot_be_compared_is_refused_in_a_line(snapshot: SnapshotAssertion) -> None:
    a = saved(mlp(), "a.onnx")
    x = {"x": numbers(4, 16)}
    another = model([helper.make_node("ReduceMax", ["x"], ["z"], keepdims=0)], {}, [4, 16], ("z",))
    two_inputs = two("e", "n")
    two_inputs.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [1]))
    Path("text.txt").write_text("x", encoding="utf-8")
    status = ExitStatus(script=0, whynan=0)
    TraceWriter("trace").begin(Run(command="onnx a.onnx", exit_status=status, versions={}), {})
    said = {
        "no setting": refused(a, None, x),
        "no file": refused("lost.onnx", a, x),
        "no program": refused("lost.pt2", a, x),
        "no such form": refused("text.txt", a, x),
        "a trace": refused("trace", a, x),
        "neither": refused(3, a, x),
        "no module": refused("nowhere:net", a, x),
        "nothing given": refused(a, a),
        "unknown input": refused(a, a, {"z": numbers(1)}),
        "other inputs": refused(a, saved(two_inputs, "two.onnx"), x),
        "no common output": refused(a, saved(another, "another.onnx"), x),
        "level": refused(a, None, x, b_opt_level="most"),
        "provider": refused(a, None, x, b_provider="abacus"),
        "device": refused(a, None, x, b_device="cuda"),
        "a level of torch": refused(Net(), None, [torch.randn(2, 4)], b_opt_level="none"),
    }
    assert said == snapshot


def row(ops: list[str]) -> onnx.ModelProto:
    """A model of operators one after the other."""
    names = ["x", *(f"v{n}" for n in range(len(ops) - 1)), "y"]
    pairs = zip(ops, itertools.pairwise(names), strict=True)
    return model([helper.make_node(op, [one], [other], name=f"{op}_{one}") for op, (one, other) in pairs], {}, [4, 16])


def test_a_model_of_another_architecture_is_refused() -> None:
    a = row(["Sin", "Cos", "Exp", "Neg", "Abs", "Sqrt", "Sin", "Cos"])
    b = renamed(row(["Tanh", "Sigmoid", "Erf", "Softplus", "Floor", "Sign", "Tanh", "Relu"]))
    message = refused(saved(a, "a.onnx"), saved(b, "b.onnx"), {"x": numbers(4, 16)})
    assert message.startswith("only 1 of 8 values of A and B could be aligned")


def test_an_early_change_of_a_disguised_model_is_no_other_architecture() -> None:
    changed = renamed(row(["Cos", "Sin", "Cos", "Exp", "Neg", "Abs", "Sqrt", "Sin"]))
    report = whynan.diff(
        saved(row(["Sin", "Sin", "Cos", "Exp", "Neg", "Abs", "Sqrt", "Sin"]), "a.onnx"),
        saved(changed, "b.onnx"),
        {"x": numbers(4, 16)},
    )
    assert (report.verdict, report.findings[0].node) == ("divergent", "n0")
