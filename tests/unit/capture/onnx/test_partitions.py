"""Nodes that a provider has compiled together, as one node of the executed graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tests.unit.capture.onnx.looking import f32
from tests.unit.capture.onnx.told import FLOAT, Told, model, node, saved
from tests.unit.capture.onnx.written_models import nodes as executed
from whynan.capture.onnx.engine import EngineSettings, opened
from whynan.capture.onnx.execution import COMPILED
from whynan.capture.onnx.partitions import Partition, alike, folded, named, partitions_of
from whynan.capture.onnx.sites import Sites
from whynan.capture.onnx.values import same_bits

X = np.arange(8, dtype=np.float32).reshape(2, 4)
CPU = "CPUExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
compiles = pytest.mark.skipif(OPENVINO not in ort.get_available_providers(), reason="needs onnxruntime-openvino")


def interleaved() -> onnx.ModelProto:
    """Two chains that take turns and meet at the end, the first node without a name."""
    nodes = [
        node("Mul", "x two", "a", ""),
        node("Neg", "x", "n"),
        node("Sub", "a two", "b"),
        node("Abs", "n", "m"),
        node("Div", "b b", "c"),
        node("Add", "c m", "y"),
    ]
    return model(nodes, ["x"], ["y"], {"two": np.float32(2)})


def part(names: dict[str, str], *values: str, provider: str = "Own") -> Partition:
    """The nodes that write these values."""
    return Partition(provider, frozenset(names[value] for value in values), ())


def put_together(proto: onnx.ModelProto, *groups: tuple[str, ...]) -> onnx.ModelProto:
    """The nodes of each group, told by the values that they write, as one."""
    made = named(proto)
    graphs = [proto.graph, *(a.g for n in proto.graph.node for a in n.attribute if a.HasField("g"))]
    names = {output: n.name for graph in graphs for n in graph.node for output in n.output}
    return folded(proto, [part(names, *group) for group in groups], made)


def outputs(proto: onnx.ModelProto, **feeds: Any) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(proto.SerializeToString(), options, providers=[CPU]).run(None, feeds)


def shown(proto: onnx.ModelProto) -> list[tuple[str, list[str], list[str]]]:
    return [(n.op_type, list(n.input), list(n.output)) for n in proto.graph.node]


def test_a_partition_is_one_node_with_what_enters_and_leaves_it() -> None:
    found = put_together(interleaved(), ("a", "b", "c"))
    title = "partition of 3 nodes compiled by Own"
    assert shown(found) == [
        (title, ["x", "two"], ["c"]),
        ("Neg", ["x"], ["n"]),
        ("Abs", ["n"], ["m"]),
        ("Add", ["c", "m"], ["y"]),
    ]
    assert [n.name for n in found.graph.node] == [title, "neg", "abs", "add"]
    assert [n.op_type for n in found.functions[0].node] == ["Mul", "Sub", "Div"]
    assert [n.name for n in found.functions[0].node] == ["", "sub", "div"]


def test_it_computes_what_its_nodes_do() -> None:
    with np.errstate(all="ignore"):
        for groups in ([("a", "b", "c")], [("a", "b", "c"), ("n", "m")], [("a", "n", "b", "m", "c", "y")]):
            found = put_together(interleaved(), *groups)
            assert same_bits(outputs(found, x=X)[0], outputs(interleaved(), x=X)[0])
    other = put_together(interleaved(), ("a", "b", "c"))
    other.functions[0].node[1].op_type = "Add"
    assert not same_bits(outputs(other, x=X)[0], outputs(interleaved(), x=X)[0])


def test_it_stands_behind_all_that_it_reads() -> None:
    # the first of its nodes comes before a node that a later one reads
    found = put_together(interleaved(), ("a", "b", "c", "y"))
    assert [n.output[0] for n in found.graph.node] == ["n", "m", "y"]
    assert same_bits(outputs(found, x=X)[0], outputs(interleaved(), x=X)[0])


def test_several_are_numbered() -> None:
    found = put_together(interleaved(), ("a", "b"), ("n", "m"))
    assert [n.op_type for n in found.graph.node if n.domain == COMPILED] == [
        "partition 1 of 2, 2 nodes compiled by Own",
        "partition 2 of 2, 2 nodes compiled by Own",
    ]


def branching() -> onnx.ModelProto:
    out = helper.make_tensor_value_info("t", FLOAT, None), helper.make_tensor_value_info("e", FLOAT, None)
    then = helper.make_graph([node("Mul", "x two", "t0", "add"), node("Log", "t0", "t")], "then", [], [out[0]])
    other = helper.make_graph([node("Neg", "x", "e")], "else", [], [out[1]])
    nodes = [
        node("Exp", "x", "w"),
        helper.make_node("If", ["c"], ["z"], "if", then_branch=then, else_branch=other),
        node("Add", "z w", "y"),
    ]
    given = ["x", helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    return model(nodes, given, ["y"], {"two": np.float32(2)})


@pytest.mark.parametrize("groups", [[("t0", "t")], [("z", "y")], [("w", "z", "y")]], ids=str)
def test_in_bodies_and_with_bodies(groups: list[tuple[str, ...]]) -> None:
    found = put_together(branching(), *groups)
    for condition in (True, False):
        feeds = {"x": X, "c": np.array(condition)}
        assert same_bits(outputs(found, **feeds)[0], outputs(branching(), **feeds)[0])
    assert len(found.functions) == 1


def test_of_an_old_model_what_is_constant_stays_so() -> None:
    proto = interleaved()
    proto.ir_version = 3
    proto.graph.input.append(helper.make_tensor_value_info("two", FLOAT, []))
    found = put_together(proto, ("a", "b"))
    assert [value.name for value in found.graph.input] == ["x"]


def test_the_same_partitions_are_those_of_the_same_types() -> None:
    one = [Partition("A", frozenset("xy"), ("Add", "Mul")), Partition("B", frozenset("z"), ("Neg", "Neg"))]
    assert alike(one, [Partition("B", frozenset("p"), ("Neg", "Neg")), Partition("A", frozenset("q"), ("Add", "Mul"))])
    assert not alike(one, one[:1])
    assert not alike(one, [one[0], Partition("A", frozenset("z"), ("Neg", "Neg"))])


def test_a_provider_that_compiles_nothing_has_no_partitions(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(saved(interleaved(), tmp_path), options, providers=[CPU])
    assert partitions_of(session) == ()
    assert partitions_of(object()) is None


def test_its_nodes_are_told_and_a_line_only_where_all_have_the_same() -> None:
    def exported(*lines: int) -> onnx.ModelProto:
        proto = interleaved()
        for n, line in zip((proto.graph.node[i] for i in (0, 2, 4)), lines, strict=True):
            trace = f'File "/home/me/net.py", line {line}, in forward\n    return x'
            entry = n.metadata_props.add()
            entry.key, entry.value = "pkg.torch.onnx.stack_trace", trace
        return proto

    def told(*lines: int) -> tuple[Any, str | None]:
        found = put_together(exported(*lines), ("a", "b", "c"))
        sites = Sites(exported(*lines), found)
        (first,) = (n for n in executed(found.graph) if n.domain == COMPILED)
        return sites.site(first, "c"), sites.note(first)

    apart, note = told(7, 8, 9)
    assert (apart[0], apart[3]) == (None, "partition of 3 nodes compiled by Own")
    assert note == "was compiled from Mul a, Sub sub and Div div"
    together, _ = told(7, 7, 7)
    assert together[0].line == 7


# -- with a provider that compiles -------------------------------------------------------------------------------------


def two_parts() -> onnx.ModelProto:
    """What OpenVINO compiles, what it does not, and what it compiles again."""
    nodes = [
        node("Mul", "x two", "m"),
        node("Sub", "m two", "s"),
        node("Unique", "s", "u"),
        node("Sub", "u u", "w", ""),
        node("Div", "w w", "y"),
    ]
    return model(nodes, [helper.make_tensor_value_info("x", FLOAT, [4])], ["y", "m"], {"two": np.float32(2)})


@compiles
@pytest.mark.parametrize("level", ["disabled", "basic", "all"])
def test_a_compiling_provider_is_looked_at_at_its_borders(tmp_path: Path, level: Any) -> None:
    path = saved(two_parts(), tmp_path)
    with opened(EngineSettings(path, providers=(OPENVINO, CPU), level=level)) as engine:
        for _ in range(2):
            told = Told(again=True)
            outcome = engine.run({"x": f32(1, 2, 3, 4)}, told)
            assert outcome.bit_equal is True
            assert all(told.same_alone)
            assert [(n.provider, n.inputs, n.outputs) for n in told.nodes] == [
                (OPENVINO, ("x", "two"), ("m", "s")),
                (CPU, ("s",), ("u",)),
                (OPENVINO, ("u",), ("y",)),
            ]
            assert same_bits(told.values["s"], f32(0, 2, 4, 6))
            assert told.counted["y"].n_nan == 4
            assert outcome.segments == 1
    assert any(note.startswith(f"{OPENVINO} compiled 4 nodes into 2 partitions: ") for note in outcome.notes)


@compiles
def test_float16_that_it_keeps_is_put_together_as_in_production(tmp_path: Path) -> None:
    half = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [4]) for n in "xy"]
    nodes = [node("Mul", "x two", "m", ""), node("Sub", "m two", "s", ""), node("Neg", "s", "y", "")]
    path = saved(model(nodes, half[:1], half[1:], {"two": np.float16(2)}), tmp_path)
    with opened(EngineSettings(path, providers=(OPENVINO, CPU))) as engine:
        told = Told()
        outcome = engine.run({"x": np.arange(4, dtype=np.float16)}, told)
    assert outcome.bit_equal is True
    assert [n.op for n in told.nodes] == [f"partition of 3 nodes compiled by {OPENVINO}"]


def columns() -> onnx.ModelProto:
    """What OpenVINO compiles, then columns of float64, which it leaves to the CPU, then more of its own."""
    nodes = [
        node("Mul", "x two", "m"),
        node("Sub", "m two", "s"),
        node("Cast", "s", "c", to=TensorProto.DOUBLE),
        *(node("Gather", f"c i{i}", f"g{i}", f"column{i}", axis=1) for i in range(4)),
        node("Sum", "g0 g1 g2 g3", "l"),
        node("Cast", "l", "f", "back", to=FLOAT),
        node("Sub", "f f", "w", "nothing"),
        node("Div", "w w", "y"),
    ]
    weights = {"two": np.float32(2), **{f"i{i}": np.int64(i) for i in range(4)}}
    return model(nodes, [helper.make_tensor_value_info("x", FLOAT, [2, 4])], ["y"], weights)


@compiles
@pytest.mark.parametrize("level", ["basic", "all"])
def test_what_is_not_compiled_is_optimised_as_in_production(tmp_path: Path, level: Any) -> None:
    settings = EngineSettings(saved(columns(), tmp_path), providers=(OPENVINO, CPU), level=level)
    with opened(settings) as engine:
        told = Told(again=True)
        outcome = engine.run({"x": X}, told)
    assert outcome.bit_equal is True
    assert all(told.same_alone)
    ops = [n.op for n in told.nodes]
    assert ops[0].startswith("partition 1 of 2, 2 nodes compiled by")
    assert ops[-1].startswith("partition 2 of 2, 2 nodes compiled by")
    # later optimisations, of the CPU's nodes alone
    assert (ops.count("Gather"), ops.count("Split")) == ((0, 1) if level == "all" else (4, 0))
    # each node is one that production ran
    assert outcome.placement == {OPENVINO: 2, CPU: len(ops) - 2}
    assert told.counted["y"].n_nan == 2
