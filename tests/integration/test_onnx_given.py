"""Bad numbers that a model is given, in an input or a constant, and that leave it as they came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.integration.onnx_command import model, run

pytestmark = pytest.mark.process

ENGINES = [(), ("--graph", "original"), ("--engine", "reference")]


@pytest.mark.parametrize("engine", ENGINES)
def test_constant_that_is_an_output_is_told_of(tmp_path: Path, engine: tuple[str, ...]) -> None:
    spoilt = np.array([[np.nan, 1, 1]], np.float32)
    path = model(tmp_path, [helper.make_node("Sqrt", ["x"], ["y"])], "x", "y w", ("w", spoilt))

    ran = run(tmp_path, path, "-i", "x=ones", *engine)

    assert ran.report is not None
    (found,) = ran.report["findings"]
    assert (ran.status, ran.report["verdict"], found["rule"], found["value"]) == (1, "nonfinite", "WN001", "w")
    assert "initializer w holds NaN at [0, 0]" in found["message"]
    assert found["reaches"] == [{"kind": "output", "name": "w", "bad": 1, "total": 3, "value": None}]


@pytest.mark.parametrize("engine", ENGINES)
def test_constant_that_a_branch_gives_is_told_of(tmp_path: Path, engine: tuple[str, ...]) -> None:
    def branch(name: str, number: float) -> Any:
        value = helper.make_tensor(f"{name}_w", TensorProto.FLOAT, [2], [number, 1.0])
        given = helper.make_tensor_value_info(f"{name}_w", TensorProto.FLOAT, [2])
        return helper.make_graph([], name, [], [given], [value])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["choice"], to=TensorProto.BOOL),
        helper.make_node("If", ["choice"], ["w"], then_branch=branch("yes", np.nan), else_branch=branch("no", 1.0)),
    ]

    ran = run(tmp_path, model(tmp_path, nodes, "x", "w"), "-i", "x=ones", *engine)

    assert ran.report is not None
    assert ran.report["verdict"] == "nonfinite"


@pytest.mark.parametrize("more", [(), ("--redact",)])
def test_given_infinity_is_not_said_to_reach_no_output(tmp_path: Path, more: tuple[str, ...]) -> None:
    path = model(tmp_path, [helper.make_node("Neg", ["x"], ["y"])], "x", "y")

    bad, good = (run(tmp_path, path, "-i", f"x={number}", *more) for number in ("inf", "1"))

    assert (bad.status, good.status) == (0, 0)
    assert "clean: no bad number that the run made reached an output" in bad.out
    assert (
        f"note: what is bad in {'outputs' if more else 'y'} was given: {'left out' if more else 'input x'}" in bad.out
    )
    assert "clean: no bad number reached an output" in good.out
    assert "was given" not in good.out


def test_negative_infinity_of_a_constant_is_called_so(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sub", ["w", "w"], ["zero"], "/Sub"), helper.make_node("Add", ["x", "zero"], ["y"])]
    path = model(tmp_path, nodes, "x", "y", ("w", np.full((1, 3), -np.inf, np.float32)))

    ran = run(tmp_path, path, "-i", "x=ones", "--graph", "original")

    assert ran.report is not None
    summaries = [link["summary"] for link in ran.report["findings"][0]["chain"] if link["role"] == "cause"]
    assert "initializer w holds -Inf at [0, 0]" in summaries


def test_chain_ends_with_all_that_was_reached(tmp_path: Path) -> None:
    path = model(tmp_path, [helper.make_node("Exp", ["x"], ["y"])], "x", "y")

    ran = run(tmp_path, path, "-i", "x=1000")

    assert ran.report is not None
    (found,) = ran.report["findings"]
    assert found["reaches"] == [{"kind": "output", "name": "y", "bad": 6, "total": 6, "value": None}]
    assert [link["summary"] for link in found["chain"] if link["role"] == "sink"] == ["the output y: 6 of 6 bad"]
