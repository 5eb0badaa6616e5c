"""A model's graph as operations and values."""

from __future__ import annotations

import onnx
import pytest

from tests.unit.capture.onnx.written_models import nodes, parsed
from whynan.capture.onnx.graph import model as graphs
from whynan.capture.onnx.graph.model import (
    Graph,
    Operation,
    graph_and_bodies,
    inline_functions,
    listed,
    live_operations,
    value_aliases,
)

FUNCTIONS = """<ir_version: 8, opset_import: ["" : 18, "l" : 1]>
agraph (float[N] x) => (float[N] y) {
  a = l.Outer(x)
  y = l.Outer(a)
}
<domain: "l", opset_import: ["" : 18, "l" : 1]>
Outer (A) => (Y) { t = Sin(A)
  u, v = l.Inner(t)
  Y = Add(u, v) }
<domain: "l", opset_import: ["" : 18, "l" : 1]>
Inner (A) => (Y, A) { Y = Cos(A) }
"""
LOOP = """<ir_version: 8, opset_import: ["" : 18]>
agraph (float[N] x, int64 n, bool go) => (float[N] y) {
  c = Constant<value = float {2.0}>()
  d = Exp(c)
  z = Mul(x, d)
  y = Loop(n, go, z) <body = b (int64 i, bool g, float[N] p) => (bool h, float[N] q) { h = Identity(g)
    s = Add(p, z)
    q = If(g) <then_branch = t () => (float[N] o) { o = Sub(s, d) },
      else_branch = e () => (float[N] o) { o = Neg(p) }> }>
}
"""


def ops(graph: Graph) -> list[str]:
    return [op.op for op in graph.operations]


def the(graph: Graph, op: str) -> Operation:
    (found,) = [operation for operation in graph.operations if operation.op == op]
    return found


def test_calls_are_opened_up_in_their_place() -> None:
    model = parsed(FUNCTIONS)
    graph = inline_functions(model)
    assert ops(graph) == ["Sin", "Cos", "Identity", "Add"] * 2
    first, second = graph.operations[:4], graph.operations[4:]
    assert [op.calls for op in first] == [("a",), ("u", "a"), ("u", "a"), ("a",)]
    assert [op.calls for op in second] == [("y",), ("u", "y"), ("u", "y"), ("y",)]
    assert first[0].inputs == (graph.values["x"],)
    assert second[0].inputs == first[3].outputs == (graph.values["a"],)
    assert second[3].outputs == (graph.values["y"],)
    assert [value.function for op in first for value in op.writes()] == ["l::Outer", "l::Outer", "l::Outer", None]


def test_an_input_that_a_function_hands_back_is_a_copy() -> None:
    graph = inline_functions(parsed(FUNCTIONS))
    sine, _, copy, added = graph.operations[:4]
    assert value_aliases(graph)[copy.outputs[0]] is sine.outputs[0]
    assert added.inputs[1] is copy.outputs[0]


def test_metadata_of_the_calls_follow_those_of_the_node() -> None:
    model = parsed(FUNCTIONS)
    for where, node in (("main", model.graph.node[0]), ("outer", model.functions[0].node[1])):
        node.metadata_props.append(onnx.StringStringEntryProto(key="where", value=where))
    cosine = inline_functions(model).operations[1]
    assert [dict(metadata).get("where") for metadata in cosine.metadata] == [None, "outer", "main"]


def test_functions_that_grow_without_end_are_left_as_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18, "l" : 1]>\nagraph (float[N] x) => (float[N] y) { y = l.F30(x) }\n'
    for level in range(30, 0, -1):
        inner = f"t = l.F{level - 1}(A)\n  Y = l.F{level - 1}(t)" if level > 1 else "Y = Sin(A)"
        text += f'<domain: "l", opset_import: ["" : 18, "l" : 1]>\nF{level} (A) => (Y) {{ {inner} }}\n'
    monkeypatch.setattr(graphs, "MOST", 5_000)
    graph = inline_functions(onnx.parser.parse_model(text))
    assert len(graph.operations) < 10_000
    assert any(op.domain == "l" for op in graph.operations)


def test_a_function_that_calls_itself_is_left_as_a_call() -> None:
    text = FUNCTIONS.replace("Y = Cos(A)", "Y, B = l.Inner(A)")
    graph = inline_functions(onnx.parser.parse_model(text))
    assert [op.op for op in graph.operations if op.domain == "l"] == ["Inner"] * 2


def test_bodies_are_graphs_and_read_the_one_around_them() -> None:
    graph = inline_functions(parsed(LOOP))
    loop = the(graph, "Loop")
    assert set(loop.captured) == {graph.values["z"], graph.values["d"]}
    body = loop.bodies["body"]
    assert ops(body) == ["Identity", "Add", "If"]
    assert the(body, "Add").inputs == (body.values["p"], graph.values["z"])
    assert set(the(body, "If").captured) == {body.values["s"], body.values["p"], graph.values["d"]}
    assert [g.outer for g in graph_and_bodies(graph)] == [None, graph, body, body]


def test_what_is_known_beforehand_is_constant_and_not_live() -> None:
    graph = inline_functions(parsed(LOOP))
    assert [name for name, value in graph.values.items() if value.constant] == ["c", "d"]
    assert {op.op for op in live_operations(graph)} == {"Mul", "Loop"}


def test_a_random_operation_is_not_constant() -> None:
    graph = inline_functions(
        parsed(
            """<ir_version: 8, opset_import: ["" : 18]>
            agraph (float[2] x) => (float[2] y) { s = Constant<value = float[2] {1.0, 2.0}>()
            a = RandomNormalLike(s)
            b = RandomNormalLike(s)
            t = Add(a, b)
            y = Add(t, x) }"""
        )
    )
    assert not graph.values["a"].constant
    assert not value_aliases(graph)


def test_shapes_alone_are_told_from_numbers() -> None:
    graph = inline_functions(
        parsed(
            """<ir_version: 8, opset_import: ["" : 18]>
            agraph (float[N] x) => (float[M] y) { s = Shape(x)
            t = Add(s, s)
            y = Reshape(x, t) }"""
        )
    )
    assert {name for name, value in graph.values.items() if value.shape_only} == {"s", "t"}


def test_a_calculation_done_twice_is_known_as_one() -> None:
    graph = inline_functions(
        parsed(
            """<ir_version: 8, opset_import: ["" : 18]>
            agraph (float[N] x) => (float[N] y) { one = Constant<value = float {1.0}>()
            uno = Constant<value = float {1.0}>()
            two = Constant<value = float {2.0}>()
            a = Add(x, one)
            b = Add(x, uno)
            c = Add(x, two)
            d = Softmax<axis = 0>(a)
            e = Softmax<axis = -1>(b)
            f = Identity(c)
            g = Sum(a, b, c, d, e, f)
            y = Neg(g) }"""
        )
    )
    told = {value.name: other.name for value, other in value_aliases(graph).items()}
    assert told == {"uno": "one", "b": "a", "f": "c"}


def test_a_graph_of_which_only_the_nodes_are_known_is_the_same() -> None:
    for text in (LOOP, FUNCTIONS):
        model = parsed(text)
        whole = inline_functions(model)
        listing = listed(
            [node.proto for node in nodes(model.graph) if not node.body],
            [value.name for value in model.graph.input],
            [value.name for value in model.graph.output],
        )
        if not model.functions:
            assert ops(listing) == ops(whole)
            assert {n for n, v in listing.values.items() if v.constant} == {"c", "d"}
        assert [value and value.name for value in listing.outputs] == ["y"]


def test_names_that_nothing_writes_are_constant_where_only_nodes_are_known() -> None:
    model = parsed(LOOP)
    graph = listed([n for n in model.graph.node if n.op_type != "Constant"], ["x", "n", "go"], ["y"])
    assert graph.values["c"].constant
    assert graph.values["d"].constant
    assert not graph.values["z"].constant
