"""Every live node of the file is behind an executed one, none behind two, and each is where the numbers say it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.unit.capture.onnx import oracle
from tests.unit.capture.onnx.written_models import NoLines, all_values, fed, light, nodes, optimised, parsed
from whynan.capture.onnx.graph.model import Graph, graph_and_bodies, inline_functions, live_operations
from whynan.capture.onnx.graph.origins import covers
from whynan.capture.onnx.graph.pairing import Pairing, pair_graphs
from whynan.capture.onnx.graph.sites import Sites

Network = Callable[[str, str], tuple[onnx.ModelProto, onnx.ModelProto]]

QUANTISED = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y)
<float s = {0.05}, uint8 z = {128}, float ws = {0.02}, int8 wz = {0}> {
  w = Constant<value = int8[4, 4, 1, 1] {10,-20,30,40,5,6,7,-8,9,10,-11,12,13,14,15,-16}>()
  wd = DequantizeLinear(w, ws, wz)
  xq = QuantizeLinear(x, s, z)
  xd = DequantizeLinear(xq, s, z)
  c = Conv(xd, wd)
  r = Relu(c)
  cq = QuantizeLinear(r, s, z)
  cd = DequantizeLinear(cq, s, z)
  y = Add(cd, xd)
}
"""
GELU = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[3, 4] x, float[4, 4] v) => (float[3, 4] y) {
  b = Constant<value = float[4] {0.1, -0.2, 0.3, 0.4}>()
  root = Constant<value = float {1.4142135}>()
  one = Constant<value = float {1.0}>()
  half = Constant<value = float {0.5}>()
  scale = Constant<value = float {0.25}>()
  m = MatMul(x, v)
  s = Mul(m, scale)
  a = Add(s, b)
  d = Div(a, root)
  e = Erf(d)
  f = Add(e, one)
  g = Mul(a, f)
  h = Mul(g, half)
  t = Transpose<perm = [1, 0]>(h)
  u = Transpose<perm = [1, 0]>(t)
  i = Identity(u)
  y = Softmax<axis = -1>(i)
}
"""
HALVES = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float16[3, 4] x) => (float16[3, 4] y) {
  a = Mul(x, x)
  b = Exp(a)
  y = Div(x, b)
}
"""
CHANNELS = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[1, 3, 8, 8] x) => (float[1, 5] y)
<float[32, 3, 3, 3] w, float[32, 32, 1, 1] v> {
  c = Conv<pads = [1, 1, 1, 1]>(x, w)
  r = Relu(c)
  k = Conv(r, v)
  a = Add(k, r)
  q = Relu(a)
  p = MaxPool<kernel_shape = [2, 2]>(q)
  n = Concat<axis = 1>(p, p)
  g = GlobalAveragePool(n)
  f = Flatten(g)
  y = Slice(f, starts, ends, axes)
}
"""


MERGED = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[4] x) => (float[4] y) {
  m1 = ReduceMean(x)
  s1 = Sub(x, m1)
  m2 = ReduceMean(x)
  s2 = Sub(x, m2)
  v = Mul(s2, s2)
  e = ReduceMean(v)
  r = Sqrt(e)
  y = Div(s1, r)
}
"""


def channels() -> onnx.ModelProto:
    text = CHANNELS.replace("v> {", "v, int64[1] starts = {0}, int64[1] ends = {5}, int64[1] axes = {1}> {")
    text = text.replace("float[32, 3, 3, 3] w, float[32, 32, 1, 1] v, ", "")
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for name, shape in (("w", (32, 3, 3, 3)), ("v", (32, 32, 1, 1))):
        weights = random.standard_normal(shape, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    onnx.checker.check_model(model)
    return model


def split_up(model: onnx.ModelProto, executed: onnx.ModelProto) -> tuple[Graph, Pairing]:
    main = inline_functions(executed)
    return main, pair_graphs(main, inline_functions(model))


def assert_divided(model: onnx.ModelProto, executed: onnx.ModelProto) -> int:
    """Every live node of every graph that is executed is behind a node, and none behind two clusters."""
    main, pairing = split_up(model, executed)
    found = covers(main, pairing)
    count = 0
    for graph in graph_and_bodies(main):
        written = pairing.graphs[graph]
        behind = {node for op in graph.operations for node in found[op].nodes}
        assert live_operations(written) <= behind, [(op.op, op.name) for op in live_operations(written) - behind]
        owners = Counter(node for op in graph.operations if not found[op].others for node in found[op].nodes)
        assert all(times == 1 for times in owners.values())
        count += len(behind)
    assert all(cover.chief is not None for cover in found.values())
    return count


MODELS = {
    "quantised": lambda: parsed(QUANTISED),
    "gelu": lambda: parsed(GELU),
    "halves": lambda: parsed(HALVES),
    "channels": channels,
    "merged": lambda: parsed(MERGED),
}
LEVELS = ("DISABLED", "BASIC", "EXTENDED", "ALL")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_each_live_node_is_behind_one_executed_cluster(name: str, level: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    assert assert_divided(model, optimised(model, tmp_path, level)) >= 3


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    """A network with random weights, and as it is executed at a level; each is made once."""

    @cache
    def made(name: str, level: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        model = light(name)
        return model, optimised(model, tmp_path_factory.mktemp(name), level)

    return made


@pytest.mark.parametrize(
    ("name", "level", "least"),
    [
        ("squeezenet", "EXTENDED", 66),
        ("squeezenet", "ALL", 66),
        ("shufflenet", "ALL", 203),
        ("densenet121", "EXTENDED", 668),
        ("densenet121", "ALL", 668),
        ("resnet50", "ALL", 176),
    ],
)
def test_each_live_node_of_a_network_is_behind_one_executed_cluster(
    name: str, level: str, least: int, network: Network
) -> None:
    assert assert_divided(*network(name, level)) == least


def test_an_executed_node_that_is_missing_is_noticed(network: Network) -> None:
    """The twin of the checks above."""
    model, sound = network("squeezenet", "EXTENDED")
    executed = onnx.ModelProto()
    executed.CopyFrom(sound)
    del executed.graph.node[-1]
    with pytest.raises(AssertionError):
        assert_divided(model, executed)


def assert_same_numbers(model: onnx.ModelProto, executed: onnx.ModelProto) -> tuple[int, int]:
    """What values are paired with holds their numbers: found by comparing all with all."""
    feeds = fed(model)
    was, now = all_values(model, feeds), all_values(executed, feeds)
    main, pairing = split_up(model, executed)
    blocked = {v.name for v in pairing.renamed if now[v.name].ndim == 4 and v.name.startswith("reorder")}
    same = oracle.same_numbers(now, was, blocked)
    checked = 0
    for op in main.operations:
        for value in op.writes():
            found = pairing.values.get(value)
            if found is not None and found.name in was:
                assert found.name in same[value.name], (op.op, op.name, value.name, found.name)
                checked += 1
    return checked, sum(bool(others) for others in same.values())


@pytest.mark.parametrize(
    ("name", "level"),
    [("squeezenet", "EXTENDED"), ("squeezenet", "ALL"), ("shufflenet", "ALL"), ("resnet50", "ALL")],
)
def test_values_hold_the_numbers_of_what_they_are_paired_with(name: str, level: str, network: Network) -> None:
    checked, matched = assert_same_numbers(*network(name, level))
    assert checked >= matched >= 39  # whatever the numbers can tell, the names do


def test_two_values_that_changed_names_are_noticed(network: Network) -> None:
    """The twin of the check above."""
    model, sound = network("squeezenet", "EXTENDED")
    executed = onnx.ModelProto()
    executed.CopyFrom(sound)
    joined = next(node for node in executed.graph.node if node.op_type == "Concat")
    turned = dict(zip(joined.input, reversed(joined.input), strict=True))
    for node in executed.graph.node:
        node.input[:] = [turned.get(name, name) for name in node.input]
        node.output[:] = [turned.get(name, name) for name in node.output]
    with pytest.raises(AssertionError):
        assert_same_numbers(model, executed)


@pytest.mark.parametrize("level", ["EXTENDED", "ALL"])
@pytest.mark.parametrize("name", ["gelu", "channels"])
def test_values_of_small_models_hold_the_numbers_too(name: str, level: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    checked, _ = assert_same_numbers(model, optimised(model, tmp_path, level))
    assert checked >= 3


@pytest.mark.parametrize("level", ["EXTENDED", "ALL"])
def test_a_weight_that_changes_changes_the_node_that_covers_its_reader(
    level: str, network: Network, tmp_path: Path
) -> None:
    """By cause and effect: the first executed value that a weight moves is written by the node that covers its node."""
    model, executed = network("shufflenet", level)
    feeds = fed(model)
    before = all_values(executed, feeds)
    sites = Sites(model, executed, reading=NoLines())
    weighted = [node for node in model.graph.node if node.op_type in ("Conv", "BatchNormalization")]
    assert len(weighted) == 98
    for node in weighted[::12]:
        again = optimised(oracle.disturbed(model, node.input[1]), tmp_path, level)
        moved = oracle.first_changed(executed, oracle.changed(before, all_values(again, feeds)))
        (writer,) = [found for found in nodes(executed.graph) if moved & set(found.outputs)]
        assert (node.name or node.output[0]) in sites.originals(writer)


def test_a_value_in_half_precision_goes_by_its_name_in_the_file(tmp_path: Path) -> None:
    model = parsed(HALVES)
    executed = optimised(model, tmp_path)
    sites = Sites(model, executed, reading=NoLines())
    told = {(n.op, sites.site(n, o).value, sites.fusion_note(n)) for n in nodes(executed.graph) for o in n.outputs}
    assert {("Mul", "a", None), ("Exp", "b", None), ("Div", "y", None)} <= told
    assert not any(value.startswith("Inserted") for _, value, _ in told)


def test_what_is_fused_is_said(tmp_path: Path) -> None:
    model = parsed(GELU)
    executed = optimised(model, tmp_path)
    sites = Sites(model, executed, reading=NoLines())
    notes = {node.op: sites.fusion_note(node) for node in nodes(executed.graph)}
    assert notes == {
        "FusedMatMul": "was made of MatMul m and Mul s",
        "BiasGelu": "was made of Add a, Div d, 3 others and Mul h",
        "Softmax": None,
    }


@pytest.mark.parametrize("level", LEVELS)
def test_a_node_that_reads_what_another_computes_too_was_not_made_of_it(level: str, tmp_path: Path) -> None:
    model = parsed(MERGED)
    executed = optimised(model, tmp_path, level)
    assert len(executed.graph.node) == (8 if level == "DISABLED" else 6)
    sites = Sites(model, executed, reading=NoLines())
    told = {node.outputs[0]: (sites.fusion_note(node), sites.originals(node)) for node in nodes(executed.graph)}
    assert {note for note, _ in told.values()} == {None}
    assert told["y"] == (None, ("y",))
    # the two of which one is left are both behind it
    behind = [name for _, written in told.values() for name in written]
    assert sorted(behind) == ["e", "m1", "m2", "r", "s1", "s2", "v", "y"]


def test_a_convolution_in_blocks_goes_by_what_it_writes_in_the_file(tmp_path: Path) -> None:
    model = channels()
    executed = optimised(model, tmp_path)
    sites = Sites(model, executed, reading=NoLines())
    told = [(n.op, sites.site(n, n.outputs[0]).value, sites.fusion_note(n)) for n in nodes(executed.graph)]
    assert told[:2] == [
        ("Conv", "r", "was made of Conv c and Relu r"),
        ("Conv", "q", "was made of Conv k, Add a and Relu q"),
    ]
    assert ("MaxPool", "p", None) in told
    assert sites.notes() == ()
