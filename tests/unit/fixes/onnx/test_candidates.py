"""An intent becomes an edit of the graph: at the birth or behind it, valid at the opset, and once only."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests import defects
from tests.defects import N, model_of
from tests.findings import finding
from tests.onnx_engine import bare
from whynan.fixes.candidates import Declined
from whynan.fixes.onnx import GraphCandidate, candidates
from whynan.records.intents import FixIntent

F32 = np.float32


def _only(model: onnx.ModelProto, birth: Any, *intents: FixIntent) -> GraphCandidate:
    found = candidates(model, birth, intents)
    assert len(found) == 1
    assert isinstance(found[0], GraphCandidate), found[0]
    return found[0]


def _ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


def _last(op: str, *inputs: str) -> Any:
    return N(op, list(inputs), ["y"], name="b")


def test_the_logarithm_of_a_softmax_is_one_node_of_the_same_name_and_axis() -> None:
    defect = defects.log_softmax()
    made = _only(defect.model, finding("Log", "log", "y"), defects.LOG_SOFTMAX)
    (node,) = made.model.graph.node
    assert (node.op_type, list(node.output), node.attribute[0].i) == ("LogSoftmax", ["y"], -1)
    assert (made.inputs, made.outputs) == (("x",), ("y",))
    assert made.patch == "- Log(Softmax(x, axis=-1))\n+ LogSoftmax(x, axis=-1)\n"


def test_what_must_be_replaced_may_stand_behind_the_birth() -> None:
    defect = defects.logsumexp()
    made = _only(defect.model, finding("Exp", "exp", "e"), defects.LOGSUMEXP)
    assert bare(made.model, {"x": np.array([[1000, 1, 2], [1, 2, 3]], F32)})["y"] == pytest.approx([1000, 3.4076059])


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("opset", [9, 11, 13, 17, 18, 21])
def test_reductions_are_written_as_the_opset_has_them(keep: int, opset: int) -> None:
    axes = {"axes": np.array([1])} if opset >= 13 else {}
    told = {} if axes else {"axes": [1]}
    nodes = [
        N("Exp", ["x"], ["e"], name="exp"),
        N("ReduceSum", ["e", *axes], ["s"], name="sum", keepdims=keep, **told),
        N("Log", ["s"], ["y"], name="log"),
    ]
    feeds = {"x": np.array([[500, 499], [1, 2]], F32)}
    made = _only(model_of(nodes, feeds, ["y"], axes, opset=opset), finding("Exp", "exp", "e"), defects.LOGSUMEXP)
    y = bare(made.model, feeds)["y"]
    assert y.shape == ((2, 1) if keep else (2,))
    assert y.ravel() == pytest.approx([500.3132617, 2.3132617])


@pytest.mark.parametrize(
    ("intent", "nodes"),
    [
        (defects.LOG_SIGMOID, [N("Sigmoid", ["x"], ["s"]), N("Identity", ["s"], ["i"]), _last("Log", "i")]),
        (defects.RECIPROCAL, [N("Reciprocal", ["x"], ["y"], name="b")]),
        (FixIntent("", "guard", "x ** 2", "abs(x) ** 2"), [N("Mul", ["x", "x"], ["y"], name="b")]),
        (FixIntent("", "guard", "sqrt(x)", "sqrt(abs(x))"), [N("Pow", ["x", "half"], ["y"], name="b")]),
        (FixIntent("", "guard", "rsqrt(x)", "rsqrt(abs(x))"), [N("Sqrt", ["x"], ["r"]), _last("Reciprocal", "r")]),
        (FixIntent("", "guard", "x + 1", "abs(x) + 1"), [N("Add", ["one", "x"], ["y"], name="b")]),
        (FixIntent("", "guard", "x * y", "abs(x) * y"), [N("Mul", ["x", "half"], ["y"], name="b")]),
    ],
)  # fmt: skip
def test_other_spellings_are_the_same_expression(intent: FixIntent, nodes: list[Any]) -> None:
    feeds = {"x": np.array([4.0, 9.0], F32)}
    model = model_of(nodes, feeds, ["y"], {"half": np.array(0.5, F32), "one": np.array(1, F32)})
    made = _only(model, finding(nodes[-1].op_type, "b", "y"), intent)
    assert bare(made.model, feeds)["y"] == pytest.approx(bare(model, feeds)["y"], rel=1e-3)


def test_a_variable_is_one_value_wherever_it_occurs() -> None:
    feeds = {"x": np.array([4.0], F32), "z": np.array([2.0], F32)}
    model = model_of([N("Exp", ["z"], ["e"]), N("Mul", ["x", "e"], ["y"], name="b")], feeds, ["y"])
    assert candidates(model, finding("Mul", "b", "y"), [FixIntent("", "guard", "x * exp(x)", "x")]) == []


def test_what_only_moves_elements_is_no_obstacle_to_what_is_done_with_each() -> None:
    nodes = [
        N("Softmax", ["x"], ["p"], axis=-1),
        N("Transpose", ["p"], ["t"], perm=[1, 0]),
        N("Log", ["t"], ["y"], name="log"),
    ]
    feeds = {"x": np.array([[0, 200, 1], [1, 2, 3]], F32)}
    made = _only(model_of(nodes, feeds, ["y"]), finding("Log", "log", "y"), defects.LOG_SOFTMAX)
    assert _ops(made.model) == ["LogSoftmax", "Transpose"]
    assert bare(made.model, feeds)["y"][0] == pytest.approx([-200, -2.4076059])


def test_a_value_that_others_read_stays() -> None:
    nodes = [N("Softmax", ["x"], ["p"], axis=-1), N("Log", ["p"], ["y"], name="log")]
    feeds = {"x": np.array([[0, 200, 1]], F32)}
    made = _only(model_of(nodes, feeds, ["y", "p"]), finding("Log", "log", "y"), defects.LOG_SOFTMAX)
    assert _ops(made.model) == ["Softmax", "LogSoftmax"]


def test_constants_have_the_dtype_of_the_numbers() -> None:
    nodes = [N("Div", ["a", "b"], ["y"], name="div")]
    feeds = {"a": np.array([1, 0], np.float16), "b": np.array([2, 0], np.float16)}
    made = _only(model_of(nodes, feeds, ["y"]), finding("Div", "div", "y", "float16"), defects.DIVISION)
    held = {attribute.t.data_type for node in made.model.graph.node for attribute in node.attribute}
    assert held == {TensorProto.FLOAT16}
    assert bare(made.model, feeds)["y"].tolist() == [0.5, 0.0]


@pytest.mark.parametrize("name", defects.DEFECTS)
def test_a_second_application_does_nothing(name: str) -> None:
    defect = defects.DEFECTS[name]()
    births = {
        "log_softmax": finding("Log", "log", "y"),
        "log_sigmoid": finding("Log", "log", "y"),
        "logsumexp": finding("Exp", "exp", "e"),
        "norm": finding("Div", "div", "y"),
        "mask_in_fp16": finding("Softmax", "softmax", "y"),
        "power_in_fp16": finding("Pow", "square", "q", "float16", birth="overflow"),
        "root_of_negative": finding("Sqrt", "root", "z"),
        "power_of_zero": finding("Pow", "power", "y"),
        "logarithm_of_zero": finding("Log", "log", "y"),
        "masked_softmax": finding("Softmax", "softmax", "y"),
        "in_branch": finding("Log", "choose/then_branch/log", "l"),
        "in_loop": finding("Div", "loop/body[1]/div", "part"),
        "in_function": finding("Log", "_inlfunc_LogOfSigmoid_token_0_log", "y"),
    }
    made = [one for one in candidates(defect.model, births[name], defect.intents) if isinstance(one, GraphCandidate)]
    assert made
    for one in made:
        again = candidates(one.model, births[name], defect.intents)
        assert one.title not in {other.title for other in again}


def test_nothing_is_offered_for_an_absorbed_birth() -> None:
    defect = defects.log_softmax()
    assert candidates(defect.model, finding("Log", "log", "y", fate="absorbed"), defect.intents) == []


def test_what_the_opset_lacks_is_declined_with_the_reason() -> None:
    nodes = [N("Div", ["a", "b"], ["y"], name="div")]
    feeds = {"a": np.array([1.0], F32), "b": np.array([0.0], F32)}
    (made,) = candidates(model_of(nodes, feeds, ["y"], opset=8), finding("Div", "div", "y"), (defects.DIVISION,))
    assert made == Declined(defects.DIVISION.title, "Equal of opset 8 compares no floats")


def test_an_operator_that_onnx_lacks_is_declined() -> None:
    defect = defects.log_softmax()
    intent = FixIntent("t", "reformulation", "log(x)", "lgamma(x)")
    assert candidates(defect.model, finding("Log", "log", "y"), (intent,)) == [Declined("t", "ONNX has no lgamma")]


def test_a_softmax_over_several_axes_is_not_taken_for_one_over_one() -> None:
    nodes = [N("Softmax", ["x"], ["p"], axis=1), N("Log", ["p"], ["y"], name="log")]
    feeds = {"x": np.zeros((2, 3, 4), F32)}
    intent = FixIntent("t", "reformulation", "log(softmax(x, d))", "x - logsumexp(x, d, True)")
    (made,) = candidates(model_of(nodes, feeds, ["y"], opset=11), finding("Log", "log", "y"), (intent,))
    assert made == Declined("t", "a softmax of opset 11 runs over more than one axis")


def test_the_model_given_stays_as_it_is() -> None:
    for name, make in defects.DEFECTS.items():
        defect = make()
        before = defect.model.SerializeToString(deterministic=True)
        candidates(defect.model, finding("Log", "log", "y"), defect.intents)
        assert defect.model.SerializeToString(deterministic=True) == before, name


def test_training_information_is_no_reason_to_lose_it() -> None:
    defect = defects.log_softmax()
    defect.model.training_info.add()
    (made,) = candidates(defect.model, finding("Log", "log", "y"), (defects.LOG_SOFTMAX,))
    assert isinstance(made, Declined)
    assert "training information" in made.why


def test_names_metadata_opsets_and_custom_domains_survive() -> None:
    defect = defects.log_softmax()
    model = defect.model
    model.graph.node.append(N("Strange", ["y"], ["z"], name="strange", domain="custom"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    model.opset_import.append(helper.make_opsetid("custom", 7))
    model.metadata_props.add(key="who", value="me")
    for node in model.graph.node:
        node.metadata_props.add(key="line", value=f"of {node.name}")
    made = _only(model, finding("Log", "log", "y"), defects.LOG_SOFTMAX).model
    assert [(node.op_type, list(node.output)) for node in made.graph.node] == [
        ("LogSoftmax", ["y"]),
        ("Strange", ["z"]),
    ]
    assert [entry.value for entry in made.graph.node[0].metadata_props] == ["of log"]
    assert {entry.domain: entry.version for entry in made.opset_import} == {"": 20, "custom": 7}
    assert made.metadata_props[0].value == "me"
    assert [value.name for value in made.graph.output] == ["y", "z"]


def test_external_data_stay_where_they_are() -> None:
    defect = defects.norm()
    model = defect.model
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "weights.bin"), ("offset", "4096"), ("length", "12")):
        weight.external_data.add(key=key, value=value)
    model.graph.initializer.append(weight)
    model.graph.node.append(N("Mul", ["y", "w"], ["z"], name="scale"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    made = _only(model, finding("Div", "div", "y"), defects.DIVISION).model
    (kept,) = (one for one in made.graph.initializer if one.name == "w")
    assert {entry.key: entry.value for entry in kept.external_data} == {
        "location": "weights.bin", "offset": "4096", "length": "12",
    }  # fmt: skip


def test_what_is_computed_in_a_wider_dtype_has_its_numbers_in_that() -> None:
    intent = FixIntent("t", "reformulation", "sqrt(x + e)", "type_as(sqrt(double(x) + 1e-12), x)")
    nodes = [N("Add", ["x", "eps"], ["a"]), N("Sqrt", ["a"], ["y"], name="root")]
    feeds = {"x": np.array([4.0, 0.0], F32)}
    made = _only(model_of(nodes, feeds, ["y"], {"eps": np.array(0, F32)}), finding("Sqrt", "root", "y"), intent)
    y = bare(made.model, feeds)["y"]
    assert (y.dtype, y.tolist()) == (F32, [2.0, pytest.approx(1e-6)])


def test_an_intent_that_only_source_can_have_is_none_of_a_graph() -> None:
    defect = defects.log_softmax()
    intent = FixIntent("t", "reformulation", "nll_loss(x, t)", "nll_loss(x, t, reduction='sum')")
    assert candidates(defect.model, finding("Log", "log", "y"), (intent,)) == []


@pytest.mark.parametrize("text", ["x[0]", "log(", "x if y else z", "a.b(c)", "log(x, how='well')"])
def test_what_is_no_expression_of_a_graph_is_none_of_its_intents(text: str) -> None:
    defect = defects.log_softmax()
    birth = finding("Log", "log", "y")
    assert candidates(defect.model, birth, (FixIntent("t", "reformulation", "log(x)", text),)) == []
    assert candidates(defect.model, birth, (FixIntent("t", "reformulation", text, "x"),)) == []


def test_a_norm_is_known_by_its_squares() -> None:
    defect = defects.norm()
    intent = FixIntent("t", "guard", "x / vector_norm(x, 2, d, True)", "x / where(vector_norm(x, 2, d, True) == 0, 1, vector_norm(x, 2, d, True))")  # fmt: skip  # noqa: E501
    made = _only(defect.model, finding("Div", "div", "y"), intent)
    y = bare(made.model, {"x": np.array([[3e30, 4e30, 0], [0, 0, 0]], F32)})["y"]
    assert y == pytest.approx(np.array([[0.6, 0.8, 0], [0, 0, 0]]))
