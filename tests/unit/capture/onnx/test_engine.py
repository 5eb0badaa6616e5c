"""Models run on ONNX Runtime with every value looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx_doubles import NoSites
from tests.unit.capture.onnx.told import FLOAT, Told, model, node, saved, scalar
from whynan.analysis import judge_births
from whynan.capture.onnx import optimised
from whynan.capture.onnx.arrays import same_bits
from whynan.capture.onnx.engine import EngineSettings, available_providers, open_engine, run, run_unobserved
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder
from whynan.records import Note
from whynan.report.notes import sentence, sentences

X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


def chain(**how: Any) -> onnx.ModelProto:
    """x, doubled, its logarithm, and the exponential of that."""
    nodes = [node("Mul", "x two", "m"), node("Log", "m", "l"), node("Exp", "l", "y")]
    return model(nodes, ["x"], ["y"], {"two": np.float32(2)}, **how)


def ran(path: str, feeds: dict[str, Any], **settings: Any) -> tuple[Told, Any]:
    told = Told(again=True)
    outcome = run(EngineSettings(path, **settings), feeds, told)
    assert all(told.same_alone)
    return told, outcome


def test_all_is_told_in_the_order_of_execution(tmp_path: Path) -> None:
    told, outcome = ran(saved(chain(), tmp_path), {"x": X}, graph="original")
    assert told.order == ["enters x", "enters two", "Mul mul", "Log log", "Exp exp", "leaves y"]
    assert [n.provider for n in told.begun] == ["CPUExecutionProvider"] * 3
    assert told.nodes[0].opset == 17
    with np.errstate(all="ignore"):
        assert same_bits(told.values["l"], np.log(X * 2)) or np.allclose(
            told.values["l"], np.log(X * 2), equal_nan=True
        )
    assert told.counted["l"].n_nan == int((X < 0).sum())
    assert outcome.bit_equal is True
    assert same_bits(outcome.outputs["y"], told.left["y"])
    assert (outcome.nodes, outcome.nodes_as_written, outcome.segments) == (3, 3, 1)
    assert outcome.placement == {"CPUExecutionProvider": 3}


def test_the_optimised_graph_is_the_one_that_runs(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "c"),
        node("Relu", "c", "r"),
        node("Add", "one one", "two"),
        node("Mul", "r two", "y"),
    ]
    weights = {"w": np.ones((2, 2, 1, 1), np.float32), "one": np.float32(1)}
    path = saved(model(nodes, ["x"], ["y"], weights), tmp_path)
    feeds = {"x": np.ones((1, 2, 3, 3), np.float32)}
    told, outcome = ran(path, feeds, level="extended")
    assert [n.op for n in told.begun] == ["FusedConv", "Mul"]
    assert outcome.nodes_as_written == 4
    assert [n.op_type for n in outcome.executed.graph.node] == ["FusedConv", "Mul"]
    original = ran(path, feeds, graph="original")[0]
    assert [n.op for n in original.begun] == ["Add", "Conv", "Relu", "Mul"]


def test_the_executed_graph_is_known_before_it_runs(tmp_path: Path) -> None:
    with open_engine(EngineSettings(saved(chain(), tmp_path))) as engine:
        assert [n.op_type for n in engine.executed_model.graph.node] == ["Mul", "Log", "Exp"]


def test_a_model_is_run_again_with_other_inputs(tmp_path: Path) -> None:
    with open_engine(EngineSettings(saved(chain(), tmp_path))) as engine:
        for scale in (1, 2, 3):
            told = Told()
            outcome = engine.run({"x": X * np.float32(scale)}, told)
            assert outcome.bit_equal is True
            assert same_bits(told.entered["x"][0], X * np.float32(scale))
        assert engine.run({"x": X}, Told(), compare=False).bit_equal is None


def test_nothing_is_left_of_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = {"model.onnx"}
    path = saved(chain(), tmp_path)
    ran(path, {"x": X})
    with pytest.raises(RunError):
        run(EngineSettings(path, custom_ops=("/nowhere/lib.so",)), {"x": X}, Told())
    assert {p.name for p in tmp_path.iterdir()} == before


def test_an_initialiser_among_the_inputs_may_be_given(tmp_path: Path) -> None:
    path = saved(chain(ir=3), tmp_path)
    proto = onnx.load(path)
    proto.graph.input.append(helper.make_tensor_value_info("two", FLOAT, []))
    proto.graph.input.append(helper.make_tensor_value_info("unread", FLOAT, []))
    proto.graph.initializer.append(helper.make_tensor("unread", FLOAT, [], [1.0]))
    path = saved(proto, tmp_path)
    told, outcome = ran(path, {"x": X})
    assert outcome.bit_equal is True
    assert told.entered["two"][1] == "initializer"
    with pytest.raises(RunError, match="two"):  # before version 4 of the format they are constants
        run(EngineSettings(path), {"x": X, "two": np.float32(-3)}, Told())
    proto.ir_version = 8
    other, outcome = ran(saved(proto, tmp_path), {"x": X, "two": np.float32(-3)})
    assert outcome.bit_equal is True
    assert other.entered["two"][1] == "input"
    assert same_bits(other.values["m"], X * np.float32(-3))


def test_an_input_that_nothing_reads_is_no_matter(tmp_path: Path) -> None:
    told, outcome = ran(saved(model([node("Neg", "x", "y")], ["x", "z"], ["y"]), tmp_path), {"x": X, "z": X})
    assert outcome.bit_equal is True
    assert told.entered["z"][1] == "input"


def test_a_graph_without_nodes_has_outputs(tmp_path: Path) -> None:
    nodes = [node("Add", "one one", "two"), node("Mul", "two two", "y")]
    told, outcome = ran(saved(model(nodes, [], ["y"], {"one": np.float32(1)}), tmp_path), {})
    assert outcome.nodes == 0
    assert outcome.bit_equal is True
    assert told.left["y"] == 4


def test_outputs_that_are_inputs_or_given_twice(tmp_path: Path) -> None:
    proto = model([node("Identity", "x", "i"), node("Neg", "i", "y")], ["x"], ["y", "i"], {"w": X})
    proto.graph.output.append(helper.make_tensor_value_info("w", FLOAT, None))
    told, outcome = ran(saved(proto, tmp_path), {"x": X})
    assert outcome.bit_equal is True
    assert same_bits(told.left["i"], X)
    assert same_bits(told.left["w"], X)


def test_an_output_that_is_left_out_is_none(tmp_path: Path) -> None:
    nodes = [node("Dropout", "x", "d -"), node("LSTM", "s w r", "- h", hidden_size=1)]
    weights = {"w": np.ones((1, 4, 2), np.float32), "r": np.ones((1, 4, 1), np.float32)}
    path = saved(model(nodes, ["x", "s"], ["d", "h"], weights), tmp_path)
    told, outcome = ran(path, {"x": X, "s": np.ones((3, 1, 2), np.float32)}, graph="original")
    assert outcome.bit_equal is True
    assert set(told.values) == {"d", "h"}


def test_what_ran_before_a_node_failed_is_told(tmp_path: Path) -> None:
    nodes = [node("Log", "x", "l"), node("Gather", "l i", "g"), node("Neg", "g", "y")]
    path = saved(model(nodes, ["x", scalar("i")], ["y"]), tmp_path)
    told = Told()
    with pytest.raises(RunError, match="out of data bounds") as error:
        run(EngineSettings(path), {"x": X, "i": np.array(7)}, told)
    assert error.value.nodes == 1
    assert [n.op for n in told.nodes] == ["Log"]
    assert told.counted["l"].n_nan == int((X < 0).sum())
    assert "\n" not in error.value.what
    assert not error.value.what.startswith("[ONNXRuntimeError]")


@pytest.mark.parametrize("feeds", [{}, {"y": X}, {"x": X.astype(np.float64)}], ids=["none", "unknown", "wrong"])
def test_inputs_that_the_engine_refuses(tmp_path: Path, feeds: dict[str, Any]) -> None:
    path = saved(chain(), tmp_path)
    with pytest.raises(RunError) as error:
        run(EngineSettings(path), feeds, Told())
    assert error.value.nodes == 0
    assert error.value.what


def test_a_model_that_the_engine_refuses(tmp_path: Path) -> None:
    path = saved(model([node("NoSuchThing", "x", "y")], ["x"], ["y"]), tmp_path)
    with pytest.raises(RunError, match="NoSuchThing"):
        run(EngineSettings(path), {"x": X}, Told())
    with pytest.raises(RunError, match="NoSuchThing"):
        run_unobserved(EngineSettings(path), {"x": X})


def test_weights_in_files_are_found(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32)
    path = saved(
        model([node("MatMul", "x w", "y")], ["x"], ["y"], {"w": weight}),
        tmp_path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    told, outcome = ran(path, {"x": X})
    assert outcome.bit_equal is True
    assert same_bits(told.entered["w"][0], weight)


def test_the_users_options_hold(tmp_path: Path) -> None:
    nodes = [node("Add", "x x", "a"), node("Identity", "a", "i"), node("Neg", "i", "y")]
    path = saved(model(nodes, [scalar("x", FLOAT, ("N", 4))], ["y"]), tmp_path)
    free = ran(path, {"x": X}, disabled_optimizers=("EliminateIdentity",), intra_threads=1)[0]
    assert [n.op for n in free.begun] == ["Add", "Identity", "Neg"]
    fixed = ran(path, {"x": X}, free_dimensions={"N": 2}, session_config={"session.set_denormal_as_zero": "1"})[1]
    assert fixed.executed.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    with pytest.raises(RunError):
        run(EngineSettings(path, free_dimensions={"N": 3}), {"x": X}, Told())


def test_a_provider_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "CPUExecutionProvider" in available_providers()
    told = Told()
    asked = ("CUDAExecutionProvider", "CPUExecutionProvider")
    outcome = run(EngineSettings(saved(chain(), tmp_path), providers=asked), {"x": X}, told)
    assert any("CUDAExecutionProvider was asked for and is not there" in sentence(note) for note in outcome.notes)


@pytest.mark.parametrize("producing", [2.0, float("nan")], ids=["finite", "bad"])
def test_what_a_provider_compiles_is_looked_at_on_the_others(
    producing: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = optimised.open_user_session

    def as_user(settings: EngineSettings, written: Path | None, profile: Path | None) -> Any:
        if written is not None and "AzureExecutionProvider" in settings.providers:
            raise RunError("Unable to serialize model as it contains compiled nodes.", 0)
        return made(settings, written, profile)

    monkeypatch.setattr(optimised, "open_user_session", as_user)
    monkeypatch.setattr(optimised, "bare_outputs", lambda *_: {"y": np.full((2, 4), producing, np.float32)})
    births = BirthObserver(Recorder(), NoSites(), ranges=False)
    providers = ("AzureExecutionProvider", "CPUExecutionProvider")
    outcome = run(EngineSettings(saved(chain(), tmp_path), providers=providers), {"x": np.abs(X)}, births)
    verdict = judge_births(births.end()).verdict
    assert verdict == ("clean" if producing == 2 else "inconclusive")
    assert same_bits(outcome.outputs["y"], np.full((2, 4), producing, np.float32))
    assert sentences(outcome.notes) == (
        "a provider compiles parts of the model, and nothing in them can be looked at: the outputs are those of"
        " AzureExecutionProvider, CPUExecutionProvider, and all other values those of CPUExecutionProvider",
    )


def test_float16_on_the_cpu_has_no_false_infinity(tmp_path: Path) -> None:
    nodes = [node("Mul", "x big", "a", ""), node("Mul", "a small", "b", "")]
    weights = {"big": np.float16(30000), "small": np.float16(0.0001)}
    half = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, None) for n in "xb"]
    path = saved(model(nodes, half[:1], half[1:], weights), tmp_path)
    told, outcome = ran(path, {"x": np.array([3], np.float16)})
    assert outcome.bit_equal is True
    assert not any(found.bad for found in told.counted.values())
    assert any(
        "a would overflow in float16: its greatest magnitude is 90000" in sentence(note) for note in outcome.notes
    )
    assert any("float16 is computed in float32" in sentence(note) for note in outcome.notes)


def test_each_run_is_told_of_by_itself(tmp_path: Path) -> None:
    nodes = [node("Mul", "x big", "a", ""), node("Mul", "a small", "b", "")]
    weights = {"big": np.float16(30000), "small": np.float16(0.0001)}
    half = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, None) for n in "xb"]
    path = saved(model(nodes, half[:1], half[1:], weights), tmp_path)
    with open_engine(EngineSettings(path)) as engine:
        large, small, again = (engine.run({"x": np.array([x], np.float16)}, Told()).notes for x in (3, 1, 3))
    assert again == large
    assert any("float16 is computed in float32" in sentence(note) for note in small)
    (only,) = set(large) - set(small)
    assert only == Note.create("float16_overflow", value_name="a", greatest=90000.0)
    assert set(small) <= set(large)


def test_bare_is_what_production_gives(tmp_path: Path) -> None:
    path = saved(chain(), tmp_path)
    assert same_bits(run_unobserved(EngineSettings(path), {"x": X})["y"], ran(path, {"x": X})[1].outputs["y"])


def test_a_node_that_is_not_of_the_graph_does_not_run_alone(tmp_path: Path) -> None:
    told = ran(saved(chain(), tmp_path), {"x": X})[0]
    stranger = ran(saved(chain(), tmp_path), {"x": X})[0].nodes[0]
    assert told.alone is not None
    with pytest.raises(RuntimeError, match="no node of the executed graph"):
        told.alone(stranger, [X, np.float32(2)])


def test_a_node_alone_takes_other_values(tmp_path: Path) -> None:
    told = ran(saved(chain(), tmp_path), {"x": X}, graph="original")[0]
    assert told.alone is not None
    other = np.array([1, 3], np.float32)
    assert same_bits(told.alone(told.nodes[0], [other, np.float32(2)])[0], other * 2)
    assert same_bits(told.alone(told.nodes[0], [other, np.float32(5)])[0], other * 5)
    with pytest.raises(RuntimeError):
        told.alone(told.nodes[1], [np.array(["text"], object)])


@pytest.mark.parametrize("graph", ["optimized", "original"])
def test_values_that_are_no_tensors(tmp_path: Path, graph: str) -> None:
    nodes = [
        node("SequenceConstruct", "x x", "s"),
        node("ConcatFromSequence", "s", "c", axis=0),
        node("Optional", "c", "o"),
        node("OptionalGetElement", "o", "y"),
    ]
    told, outcome = ran(saved(model(nodes, ["x"], ["y"]), tmp_path), {"x": X}, graph=graph)
    assert outcome.bit_equal is True
    assert same_bits(told.values["s"], [X, X])


def test_local_functions_are_opened_up(tmp_path: Path) -> None:
    proto = model([node("Twice", "x", "d", domain="own"), node("Log", "d", "y")], ["x"], ["y"])
    proto.opset_import.append(helper.make_opsetid("own", 1))
    body = [node("Add", "a a", "b")]
    proto.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    told, outcome = ran(saved(proto, tmp_path), {"x": X})
    assert outcome.bit_equal is True
    assert [n.op for n in told.begun] == ["Add", "Log"]
