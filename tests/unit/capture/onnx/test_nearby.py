"""The nodes around a birth: what its operands were computed from, and what was computed from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.onnx_doubles import NoSites, counters_of
from tests.onnx_engine import model_of, run
from whynan.capture.onnx.provenance.observer import BirthObserver
from whynan.capture.onnx.recorder import Recorder
from whynan.records import Neighbourhood

ROW = np.array([[0.0, 200.0]], np.float32)


def around(nodes: list[Any], feeds: dict[str, Any], outputs: list[str]) -> Neighbourhood | None:
    births = BirthObserver(Recorder(), NoSites(), ranges=False, count=counters_of)
    run(model_of(nodes, feeds, outputs, opset=18), feeds, births)
    return births.end().births[0].around


def said(found: Neighbourhood | None) -> list[str]:
    """Each operation with its place from the middle, and the events that it reads from."""
    assert found is not None
    assert found.dialect == "onnx"
    return [f"{o.hops:+d} {o.op} {[a.event for a in o.arguments if a.shape is not None]}" for o in found.operations]


def a_loss() -> list[Any]:
    return [
        helper.make_node("Softmax", ["x"], ["p"], axis=-1),
        helper.make_node("Relu", ["x"], ["aside"]),
        helper.make_node("Log", ["p"], ["l"]),
        helper.make_node("Mul", ["l", "aside"], ["weighted"]),
        helper.make_node("Neg", ["aside"], ["healthy"]),
        helper.make_node("ReduceSum", ["weighted"], ["y"], keepdims=0),
    ]


def test_what_was_read_and_what_has_read_it_are_told() -> None:
    found = around(a_loss(), {"x": ROW}, ["y", "healthy"])
    assert said(found) == ["-1 Softmax [None]", "-1 Relu [None]", "+0 Log [0]", "+1 Mul [2, 1]", "+2 ReduceSum [3]"]


def test_values_and_attributes_are_told() -> None:
    found = around(a_loss(), {"x": ROW}, ["y", "healthy"])
    assert found is not None
    (read, axis) = found.operations[0].arguments
    assert (read.name, read.shape, read.dtype, read.min, read.max) == ("input", (1, 2), "float32", 0.0, 200.0)
    assert (axis.name, axis.value) == ("axis", -1)
    assert found.operations[0].shape == (1, 2)


def test_the_same_value_has_the_same_elements() -> None:
    found = around(a_loss(), {"x": ROW}, ["y", "healthy"])
    assert found is not None
    first, aside = (o.arguments[0].elements for o in found.operations[:2])
    assert first == aside
    assert found.operations[2].arguments[0].elements != first


def test_what_is_too_large_to_be_remembered_has_no_range() -> None:
    wide = np.zeros((1, 1 << 15), np.float32)
    wide[0, 0] = 200
    found = around(a_loss(), {"x": wide}, ["y", "healthy"])
    assert found is not None
    assert [a.min for a in found.operations[0].arguments if a.shape] == []
    assert found.operations[2].arguments[0].min == 0


def test_it_has_bounds() -> None:
    chain = [helper.make_node("Identity", ["x"], ["v0"])]
    chain += [helper.make_node("Identity", [f"v{i}"], [f"v{i + 1}"]) for i in range(40)]
    chain += [helper.make_node("Log", ["v40"], ["l0"])]
    chain += [helper.make_node("Identity", [f"l{i}"], [f"l{i + 1}"]) for i in range(40)]
    found = around(chain, {"x": ROW}, ["l40"])
    assert found is not None
    assert [o.hops for o in found.operations] == list(range(-8, 8))


def test_a_healthy_graph_asks_for_nothing() -> None:
    births = BirthObserver(Recorder(), NoSites(), ranges=False, count=counters_of)
    feeds = {"x": np.ones((1, 2), np.float32)}
    run(model_of(a_loss(), feeds, ["y"], opset=18), feeds, births)
    assert not births.end().births
