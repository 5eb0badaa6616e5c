"""The processes of ``whynan onnx``: crashes, second runs, and what is left where the user breaks off."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from syrupy.assertion import SnapshotAssertion

from tests.integration.onnx_command import WHYNAN, model
from tests.integration.onnx_command import run_apart as run

pytestmark = pytest.mark.process


def crashing(folder: Path) -> str:
    """What crashes the engine where the sum of x is above 0, and gives 1 / 0 where it is not."""
    then = [helper.make_node("Split", ["x"], ["", "half"], "/Split", axis=0, num_outputs=2)]
    other = [helper.make_node("Div", ["x", "zero"], ["pole"], "/Div")]
    branches = {
        "then_branch": helper.make_graph(then, "then", [], [helper.make_tensor_value_info("half", 1, None)]),
        "else_branch": helper.make_graph(other, "else", [], [helper.make_tensor_value_info("pole", 1, None)]),
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], "/Sum", keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["above"], "/Greater"),
        helper.make_node("If", ["above"], ["out"], "/If", **branches),
    ]
    return model(folder, nodes, "x", "out", ("zero", np.float32(0)))


@pytest.mark.full
def test_a_crash_is_that_of_one_case(tmp_path: Path) -> None:
    name = crashing(tmp_path)
    alone = run(tmp_path, name, "-i", "x=ones")
    assert (alone.status, "the engine crashed (SIGSEGV)" in alone.err) == (2, True)
    ran = run(tmp_path, name, "-i", "x=uniform(-1,1)", "--random", "0", "--cases", "8", "--trace", "kept")
    assert (ran.status, ran.err) == (1, "")
    assert ran.report is not None
    assert ran.report["verdict"] == "nonfinite"
    (note,) = (note for note in ran.report["coverage"]["notes"] if "ran to no end" in note)
    assert "of the other cases ran to no end, the first of them number " in note
    assert note.endswith(": the engine crashed (SIGSEGV)")
    # each has its trace
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("kept")]) == 8


def test_where_every_case_crashes_nothing_is_to_be_told(tmp_path: Path) -> None:
    ran = run(tmp_path, crashing(tmp_path), "-i", "x=uniform(1,2)", "--random", "0", "--cases", "2")
    assert (ran.status, ran.report) == (2, None)
    assert "cannot be run: the engine crashed (SIGSEGV)" in ran.err


def far(folder: Path, operation: str = "Mul") -> str:
    """A pole whose operand has become 0 three nodes before, in values that are not kept for being large."""
    nodes = [
        helper.make_node("Mul", ["x", "tiny"], ["small"], "/Small"),
        helper.make_node(operation, ["small", "small"], ["square"], "/Square"),
        helper.make_node("Abs", ["square"], ["size"], "/Abs"),
        helper.make_node("Div", ["x", "size"], ["out"], "/Div"),
    ]
    return model(folder, nodes, "x", "out", ("tiny", np.float32(1e-30)))


def test_where_all_is_known_there_is_no_second_run(tmp_path: Path) -> None:
    ran = run(tmp_path, far(tmp_path), "-i", "x=ones", "--graph", "original")
    assert ran.report is not None
    assert len([link for link in ran.report["findings"][0]["chain"] if link["role"] == "cause"]) == 2
    assert ran.report["coverage"]["notes"] == []


def endless(folder: Path) -> str:
    """A loop that runs for hours."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Sin", ["v"], ["w"], "/Sin")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []), helper.make_tensor_value_info("w", 1, None)],
    )
    nodes = [helper.make_node("Loop", ["times", "", "x"], ["out"], "/Loop", body=body)]
    return model(folder, nodes, "x", "out", ("times", np.int64(1 << 60)))


@pytest.mark.skipif(os.name != "posix", reason="process groups")
@pytest.mark.parametrize("whole_group", [True, False], ids=["as a terminal does", "the command alone"])
def test_an_interrupted_run_leaves_nothing_behind(
    tmp_path: Path, whole_group: bool, snapshot: SnapshotAssertion
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*WHYNAN, "onnx", endless(tmp_path), "-i", "x=ones", "--trace", "kept"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        began = time.monotonic()
        # the trace is begun before the engine, which takes a moment to come to the loop
        while not list(temporary.glob("*/whynan-*/executed.onnx")):
            assert process.poll() is None
            assert time.monotonic() - began < 120
            time.sleep(0.1)
        time.sleep(1)
        assert process.poll() is None
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, out) == (130, "")
    assert err == snapshot
    assert list(temporary.iterdir()) == []
