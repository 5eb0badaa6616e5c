"""Executed nodes lead to the lines and modules of the file that they were made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

from tests.unit.capture.onnx import exported_models, oracle
from tests.unit.capture.onnx.written_models import NoLines, all_values, fed, light, nodes, optimised, parsed
from whynan.capture.onnx.execution import Node
from whynan.capture.onnx.graph.sites import Place, Sites
from whynan.records import Site
from whynan.report.notes import sentences

LINES = Path(exported_models.__file__).read_text(encoding="utf-8").splitlines()
WRITTEN = {
    "FusedMatMul": r"query @ key",
    "MatMul": r"self\.\w+\(|weights @ value|query @ key",
    "Gemm": r"self\.(head|query|key|value|out|wide|narrow)\(",
    "Softmax": r"torch\.softmax\(",
    "LogSoftmax": r"torch\.log_softmax\(",
    "Tanh": r"torch\.tanh\(",
    "LayerNormalization": r"self\.(before|after)\(",
    "ReduceMean": r"x\.mean\(1\)",
}
"""What stands in the line of a node of each type, whatever its name."""


class Numbered:
    """Reads the number that ``numbered`` wrote; of one line it reads the next."""

    def __init__(self, astray: int | None = None) -> None:
        self.astray = astray

    def place_of(self, metadata: Mapping[str, str], /) -> tuple[Site | None, None, str | None]:
        line = int(metadata.get("line", 0))
        line += line == self.astray
        return (Site(file="model.py", line=line) if line else None), None, None

    def module_of(self, node_name: str, /) -> str | None:
        return NoLines().module_of(node_name)


def numbered(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, each node of it and of its functions on a line of its own."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    line = 0
    for holder in (copy.graph, *copy.functions):
        waiting = list(holder.node)
        while waiting:
            node = waiting.pop(0)
            line += 1
            node.metadata_props.append(onnx.StringStringEntryProto(key="line", value=str(line)))
            waiting.extend(inner for a in node.attribute if a.HasField("g") for inner in a.g.node)
    return copy


def line_of(model: onnx.ModelProto, output: str) -> int:
    """The line of the node that writes a value of the main graph."""
    (node,) = [node for node in model.graph.node if output in node.output]
    return next(int(entry.value) for entry in node.metadata_props if entry.key == "line")


def told(sites: Sites, executed: onnx.ModelProto) -> dict[tuple[str, ...], tuple[str, int | None]]:
    """Type and line of each executed node, by the way to it and its first value."""
    found: dict[tuple[str, ...], tuple[str, int | None]] = {}
    for node in nodes(executed.graph):
        site = sites.site(node, node.outputs[0]).site
        way = [part for holder, attribute, _ in node.body for part in (holder, attribute)]
        found[(*way, node.outputs[0])] = (node.op, site.line if site else None)
    return found


def assert_lines_between_numbers(model: onnx.ModelProto, executed: onnx.ModelProto, reading: Numbered) -> int:
    """By numbers alone: the line is of a node on the way from what the executed node reads to what it writes."""
    feeds = fed(model)
    was, now = all_values(model, feeds), all_values(executed, feeds)
    blocked = {out for n in executed.graph.node for out in n.output if out.startswith("reorder") and now[out].ndim == 4}
    same = oracle.same_numbers(now, was, blocked)
    makers = {output: node for node in model.graph.node for output in node.output}
    sites = Sites(model, executed, reading=reading)
    checked = 0
    for node in nodes(executed.graph):
        reads = {found for value in node.inputs for found in same.get(value, ())}
        waiting = list(same[node.outputs[0]] - reads)
        if not waiting:
            continue
        between: set[int] = set()
        while waiting:
            value = waiting.pop()
            if value in makers and value not in reads:
                line = line_of(model, value)
                waiting.extend([] if line in between else makers[value].input)
                between.add(line)
        site = sites.site(node, node.outputs[0]).site
        assert site is not None
        assert site.line in between
        checked += 1
    return checked


@pytest.mark.parametrize("level", ["EXTENDED", "ALL"])
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_lines_are_those_of_nodes_between_values_of_the_same_numbers(name: str, level: str, tmp_path: Path) -> None:
    model = numbered(light(name))
    assert assert_lines_between_numbers(model, optimised(model, tmp_path, level), Numbered()) >= 39


def test_a_line_that_is_another_nodes_is_noticed(tmp_path: Path) -> None:
    """The twin of the check above."""
    model = numbered(light("squeezenet"))
    with pytest.raises(AssertionError):
        assert_lines_between_numbers(model, optimised(model, tmp_path), Numbered(astray=3))


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> tuple[onnx.ModelProto, Path]:
    folder = tmp_path_factory.mktemp("transformer")
    return exported_models.exported(folder / "exported.onnx", dynamo=True), folder


@pytest.mark.parametrize("level", ["BASIC", "EXTENDED", "ALL"])
def test_nodes_of_an_exported_transformer_lead_to_their_expressions(
    level: str, transformer: tuple[onnx.ModelProto, Path]
) -> None:
    model, folder = transformer
    executed = optimised(model, folder, level)
    sites = Sites(model, executed)
    seen: list[str] = []
    for node in nodes(executed.graph):
        site = sites.site(node, node.outputs[0]).site
        assert site is not None, node.name
        assert site.file.endswith("exported_models.py")
        if node.op in WRITTEN:
            assert re.search(WRITTEN[node.op], LINES[site.line - 1]), (node.op, node.name, LINES[site.line - 1])
            seen.append(node.op)
    assert sites.notes() == ()
    assert {"LayerNormalization", "Softmax", "LogSoftmax", "Tanh", "ReduceMean"} <= set(seen)
    assert seen.count("Softmax") == 2
    modules = {sites.site(n, n.outputs[0]).module for n in nodes(executed.graph) if n.op == "Softmax"}
    assert modules == {"blocks.0.attention", "blocks.1.attention"}


def test_a_stripped_model_has_no_lines(transformer: tuple[onnx.ModelProto, Path]) -> None:
    model, folder = transformer
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for node in bare.graph.node:
        del node.metadata_props[:]
    executed = optimised(bare, folder, "ALL", name="bare")
    blind, whole = Sites(bare, executed), Sites(model, executed)
    for node in nodes(executed.graph):
        place, located = (sites.site(node, node.outputs[0]) for sites in (blind, whole))
        assert (place.site, place.node, place.value) == (None, located.node, located.value)
        assert located.site is not None


@pytest.mark.parametrize("doc", ["/home/me/net.py(7): forward", "a logarithm"])
def test_the_frames_of_a_scripted_export_that_is_verbose_are_its_lines(doc: str, tmp_path: Path) -> None:
    model = parsed(
        "<ir_version: 8, opset_import: ['': 17]> g (float[2] x) => (float[2] y) { y = Log(x) }".replace("'", '"')
    )
    model.graph.node[0].doc_string = doc
    executed = optimised(model, tmp_path)
    (node,) = nodes(executed.graph)
    site = Sites(model, executed).site(node, "y").site
    assert (None if site is None else site.line) == (7 if "(7)" in doc else None)


def test_a_scripted_export_leads_to_the_module(tmp_path: Path) -> None:
    model = exported_models.exported(tmp_path / "scripted.onnx", dynamo=False)
    executed = optimised(model, tmp_path)
    sites = Sites(model, executed)
    places = {n.op: sites.site(n, n.outputs[0]) for n in nodes(executed.graph)}
    assert places["Tanh"].module == "blocks.1"
    assert places["Softmax"].module == "blocks.1.attention"
    assert all(place.site is None for place in places.values())


BRANCHES = """<ir_version: 8, opset_import: ["" : 18]>
agraph (float[2, 3] x, bool given) => (float[M, K] y, float[P, Q] z) {
  s = Shape(x)
  zero = Constant<value = int64 {0}>()
  g = Gather(s, zero)
  two = Constant<value = int64 {2}>()
  c = Equal(g, two)
  r = Sqrt(x)
  d = If(c) <then_branch = t1 () => (float[M, K] o) { t = Sin(r)
    o = Neg(t) }, else_branch = e1 () => (float[M, K] o) { t = Cos(r)
    o = Neg(t) }>
  e = If(given) <then_branch = t2 () => (float[M, K] o) { t = Exp(d)
    o = Neg(t) }, else_branch = e2 () => (float[M, K] o) { t = Log(d)
    o = Abs(t) }>
  n = Constant<value = int64 {3}>()
  y = Loop(n, given, e) <body = b (int64 i, bool go, float[M, K] p) => (bool on, float[M, K] q) { on = Identity(go)
    t = Tanh(p)
    q = Div(t, r) }>
  z = If(c) <then_branch = t3 () => (float[P, Q] o) { u = If(c) <then_branch = t4 () => (float[P, Q] v) { w = Atan(d)
      v = Neg(w) }, else_branch = e4 () => (float[P, Q] v) { v = Abs(d) }>
    o = Sinh(u) }, else_branch = e3 () => (float[P, Q] o) { o = Asin(d) }>
}
"""


def test_nodes_in_bodies_and_of_decided_branches_lead_to_their_lines(tmp_path: Path) -> None:
    model = numbered(parsed(BRANCHES))
    by_op = {}
    for node in nodes(model.graph):
        by_op.setdefault(node.op, set()).add(int(node.proto.metadata_props[0].value))
    executed = optimised(model, tmp_path)
    found = told(Sites(model, executed, reading=Numbered()), executed)
    assert {op for op, _ in found.values()} == {
        *("Sqrt", "Sin", "Neg", "If", "Exp", "Log", "Abs", "Loop", "Tanh", "Div", "Identity", "Atan", "Sinh")
    }
    for way, (op, line) in found.items():
        assert line in by_op[op], (way, op, line)
    assert found[("d",)] == ("Neg", next(line for line in by_op["Neg"] if line_in(model, "d", "then_branch", line)))
    assert found[("y", "body", "q")] == ("Div", *by_op["Div"])
    assert found[("e", "else_branch", "o")][0] == "Abs"


def line_in(model: onnx.ModelProto, holder: str, branch: str, line: int) -> bool:
    (node,) = [node for node in model.graph.node if holder in node.output]
    (body,) = [attribute.g for attribute in node.attribute if attribute.name == branch]
    return any(entry.value == str(line) for inner in body.node for entry in inner.metadata_props)


CALLS = """<ir_version: 8, opset_import: ["" : 18, "l" : 1]>
agraph (float[N] x) => (float[N] y) {
  a = l.F(x)
  b = l.F(a)
  y = l.G(b)
}
<domain: "l", opset_import: ["" : 18, "l" : 1]>
F (A) => (Y) { t = Sin(A)
  u = l.G(t)
  Y = Add(u, t) }
<domain: "l", opset_import: ["" : 18, "l" : 1]>
G (A) => (Y) { t = Cos(A)
  h = HardSwish(t)
  Y = Mul(h, A) }
"""


@pytest.mark.parametrize("level", ["DISABLED", "ALL"])
def test_nodes_of_functions_lead_to_the_function_and_name_the_call(level: str, tmp_path: Path) -> None:
    model = numbered(parsed(CALLS))
    executed = optimised(model, tmp_path, level)
    sites = Sites(model, executed, reading=Numbered())
    inner = {node.op_type: int(node.metadata_props[0].value) for f in model.functions for node in f.node}
    calls: list[str] = []
    for node in nodes(executed.graph):
        place = sites.site(node, node.outputs[0])
        assert place.site is not None
        if node.op in ("Sin", "Cos", "Add"):
            assert place.site.line == inner[node.op]
        if node.op == "Cos":
            calls += sites.originals(node)
            assert place.node == place.value == sites.originals(node)[0]
        if node.op == "HardSigmoid":
            assert place.site.line == inner["HardSwish"]
            assert (sites.fusion_note(node) or "").startswith("is part of HardSwish ")
    assert sorted(calls) == ["a/u/t", "b/u/t", "y/t"]
    values = [sites.site(node, node.outputs[0]).value for node in nodes(executed.graph)]
    assert {"a", "a/t", "a/u", "a/u/h", "y", "y/h"} <= set(values)


def test_a_function_without_lines_leads_to_its_call(tmp_path: Path) -> None:
    model = numbered(parsed(CALLS))
    for function in model.functions:
        for node in function.node:
            del node.metadata_props[:]
    executed = optimised(model, tmp_path)
    sites = Sites(model, executed, reading=Numbered())
    lines = [sites.site(n, n.outputs[0]).site for n in nodes(executed.graph) if n.op == "Cos"]
    assert [site.line for site in lines if site] == [1, 2, 3]


def test_a_run_that_tells_its_nodes_is_read_like_a_file(tmp_path: Path) -> None:
    for text in (BRANCHES, CALLS):
        model = numbered(parsed(text))
        executed = optimised(model, tmp_path)
        known, late = Sites(model, executed, reading=Numbered()), Sites(model, None, reading=Numbered())
        every = list(nodes(executed.graph))
        assert late.site(every[0], every[0].outputs[0]).site is None
        late.set_main_graph([node for node in every if not node.body])
        for node in every:
            for output in node.outputs:
                assert late.site(node, output) == known.site(node, output)
            assert late.originals(node) == known.originals(node)
        assert late.notes() == ()


def test_what_cannot_be_led_back_is_said(tmp_path: Path) -> None:
    model = parsed(CALLS)
    executed = optimised(model, tmp_path)
    other = parsed(
        """<ir_version: 8, opset_import: ["" : 18]>
        agraph (float[N] p) => (float[N] q) { r = Tan(p)
        q = Exp(r) }"""
    )
    sites = Sites(other, executed, reading=NoLines())
    assert len(sites.unmapped) == len(executed.graph.node)
    total = len(executed.graph.node)
    (note,) = sentences(sites.notes())
    assert note.startswith(f"{total} of {total} executed nodes could not be led back to nodes of the file: ")
    assert note.endswith(" and others")
    for node in nodes(executed.graph):
        assert sites.site(node, node.outputs[0])[:3] == (None, None, None)
        assert sites.covers(node) == ()


def test_a_node_of_another_graph_has_no_place(tmp_path: Path) -> None:
    model = parsed(CALLS)
    executed = optimised(model, tmp_path)
    sites = Sites(model, executed, reading=NoLines())
    stray = Node(0, "", "Exp", "", ("x",), ("nowhere",), SimpleNamespace())
    assert sites.site(stray, "nowhere") == Place(None, None, None, "nowhere", "nowhere", "Exp")
    astray = replace(stray, body=(("loop", "body", 3),))
    assert sites.fusion_note(astray) is None
    assert sites.originals(astray) == ()


ALIKE = """<ir_version: 8, opset_import: ["" : 18]>
agraph (float[2, 3] x) => (float[M, K] y, float[M, K] z) {
  s = Shape(x)
  zero = Constant<value = int64 {0}>()
  g = Gather(s, zero)
  two = Constant<value = int64 {2}>()
  c = Equal(g, two)
  r = Sqrt(x)
  y, z = If(c) <then_branch = t1 () => (float[M, K] o, float[M, K] p) { t = Sin(r)
    o = Neg(t)
    p = Exp(t) }, else_branch = e1 () => (float[M, K] o, float[M, K] p) { t = Sin(x)
    o = Neg(t)
    p = Exp(t) }>
}
"""


def test_branches_of_the_same_names_are_told_apart_by_what_they_read(tmp_path: Path) -> None:
    model = numbered(parsed(ALIKE))
    executed = optimised(model, tmp_path)
    found = told(Sites(model, executed, reading=Numbered()), executed)
    assert {op for op, _ in found.values()} == {"Sqrt", "Sin", "Neg", "Exp"}
    for op, line in found.values():
        assert op == "Sqrt" or line_in(model, "y", "then_branch", line or 0)


def test_names_that_cannot_be_told_apart_lead_to_one_of_the_same_calculation(tmp_path: Path) -> None:
    text = CALLS.replace("b = l.F(a)", "b = l.F(x)").replace("y = l.G(b)", "y = Sub(a, b)")
    model = numbered(parsed(text))
    executed = optimised(model, tmp_path)
    sites = Sites(model, executed, reading=Numbered())
    (sine,) = [node for node in nodes(executed.graph) if node.op == "Sin"]
    assert sites.originals(sine) == ("a/t", "b/t")
    assert sites.covers(sine) == ("Sin a/t",)
    assert sites.fusion_note(sine) is None
