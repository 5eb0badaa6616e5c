"""A model with operators of a library that somebody else has made: births before, in and after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from syrupy.assertion import SnapshotAssertion

from tests.integration.test_onnx import run

pytestmark = pytest.mark.process

extensions = pytest.importorskip("onnxruntime_extensions", reason="onnxruntime-extensions is not installed")
LIBRARY = ("--custom-ops", extensions.get_library_path())
CONTRIB = "ai.onnx.contrib"


def saved(folder: Path, *nodes: onnx.NodeProto) -> None:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(CONTRIB, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "custom.onnx")


def inverted(folder: Path) -> None:
    """A matrix made positive, and inverted."""
    saved(
        folder,
        helper.make_node("Relu", ["x"], ["r"], "positive"),
        helper.make_node("Inverse", ["r"], ["i"], "inverse", domain=CONTRIB),
        helper.make_node("Add", ["i", "r"], ["y"], "sum"),
    )


def parted(folder: Path) -> None:
    """The positive part over the negative one."""
    saved(
        folder,
        helper.make_node("NegPos", ["x"], ["n", "p"], "parts", domain=CONTRIB),
        helper.make_node("Div", ["p", "n"], ["y"], "ratio"),
    )


def given(folder: Path, rows: Any) -> tuple[str, str]:
    np.save(folder / "x.npy", np.asarray(rows, np.float32))
    return "-i", "x=x.npy"


def test_what_is_healthy_is_clean(tmp_path: Path) -> None:
    inverted(tmp_path)
    ran = run(tmp_path, "custom.onnx", *given(tmp_path, np.eye(3) * 2 + 0.1), *LIBRARY)
    assert (ran.status, ran.report and ran.report["run"]["inference"]["bit_equal"]) == (0, True), ran.err


def test_a_birth_in_an_operator_of_a_library(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    inverted(tmp_path)
    ran = run(tmp_path, "custom.onnx", *given(tmp_path, np.ones((3, 3))), *LIBRARY)
    assert ran.report is not None, ran.err
    assert {(f["op"], f["node"], f["value"], f["rule"]) for f in ran.report["findings"]} == {
        ("Inverse", "inverse", "i", "WN000")
    }
    assert ran.out == snapshot


def test_a_birth_after_an_operator_of_a_library(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    parted(tmp_path)
    ran = run(tmp_path, "custom.onnx", *given(tmp_path, [[1, -1, 2]] * 3), *LIBRARY)
    assert ran.report is not None, ran.err
    (finding,) = ran.report["findings"]
    assert (finding["op"], finding["node"], finding["rule"]) == ("Div", "ratio", "WN102")
    assert ran.out == snapshot


def test_a_nan_that_goes_through_it_is_no_birth_of_its(tmp_path: Path) -> None:
    inverted(tmp_path)
    ran = run(tmp_path, "custom.onnx", *given(tmp_path, [[1, 2, np.nan], [0, 1, 0], [0, 0, 1]]), *LIBRARY)
    assert ran.report is not None, ran.err
    assert [(f["rule"], f["birth"]) for f in ran.report["findings"]] == [("WN001", "entered")]


@pytest.mark.parametrize("options", [(), ("--engine", "reference", *LIBRARY)], ids=["no library", "reference"])
def test_without_the_library_it_is_refused_in_a_line(
    options: tuple[str, ...], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    parted(tmp_path)
    ran = run(tmp_path, "custom.onnx", *given(tmp_path, np.ones((3, 3))), *options)
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert ran.err == snapshot
