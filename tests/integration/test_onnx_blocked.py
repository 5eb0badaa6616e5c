"""Convolutions that ONNX Runtime runs on blocks of channels: what is bad in them is told as the file has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from syrupy.assertion import SnapshotAssertion

from tests.integration.onnx_command import model, run
from whynan.capture.onnx.engine import EngineSettings, open_engine
from whynan.capture.onnx.execution import NCHWC
from whynan.run.onnx import engine_process
from whynan.run.onnx.engine_process import Runner
from whynan.run.onnx.engines import EngineProcess

pytestmark = pytest.mark.process

LAYERS = [
    helper.make_node("Conv", ["x", "w1"], ["c1"], "/one", pads=[1] * 4),
    helper.make_node("Relu", ["c1"], ["r1"], "/relu"),
    helper.make_node("Conv", ["r1", "w2"], ["c2"], "/two", pads=[1] * 4),
    helper.make_node("MaxPool", ["c2"], ["p"], "/pool", kernel_shape=[2, 2]),
    helper.make_node("Log", ["p"], ["out"], "/log"),
]
CHANNELS = 20
"""No whole number of blocks."""


def convolved(folder: Path, weight: float) -> str:
    """Two convolutions, a single weight of the second being this."""
    random = np.random.default_rng(0)
    first, second = (np.abs(random.standard_normal((CHANNELS, n, 3, 3))).astype(np.float32) for n in (3, CHANNELS))
    second[5, 7, 1, 1] = weight
    name = model(folder, LAYERS, "x", "out", ("w1", first), ("w2", second))
    held = onnx.load(folder / name)
    held.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 12, 12]))
    onnx.save(held, folder / name)
    np.save(folder / "x.npy", np.full((1, 3, 12, 12), 1e20, np.float32))
    with open_engine(EngineSettings(str(folder / name))) as engine:
        if not any(node.domain == NCHWC for node in engine.executed_model.graph.node):
            pytest.skip("this processor has no layout in blocks")
    return name


def report(folder: Path, name: str, *more: str) -> dict[str, Any]:
    ran = run(folder, name, "-i", "x=x.npy", *more)
    assert ran.report is not None, ran.err
    return ran.report


def test_what_is_healthy_is_looked_at_as_it_runs(tmp_path: Path) -> None:
    found = report(tmp_path, convolved(tmp_path, 1.0), "--ranges")
    assert (found["verdict"], found["coverage"]["notes"]) == ("clean", [])
    assert found["run"]["inference"]["bit_equal"] is True
    channels = {line["shape"][1] for line in found["ranges"]}
    # filled up to whole blocks, as they lie
    assert min(channels) == CHANNELS < max(channels)


@pytest.mark.parametrize("bound", [(), ("--memory", "2GB")], ids=["free", "bounded"])
def test_a_birth_in_blocks_is_that_of_the_file(
    bound: tuple[str, ...], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    name = convolved(tmp_path, 1e30)
    found, plain = report(tmp_path, name, *bound), report(tmp_path, name, "--graph", "original")
    (birth,), (written,) = found["findings"], plain["findings"]
    for known in ("value", "birth", "rule", "element", "reaches"):
        assert birth[known] == written[known], known
    assert (birth["element"]["index"][1], birth["element"]["total"]) == (5, CHANNELS * 144)
    assert birth["element"]["operands"]
    assert found["run"]["inference"]["bit_equal"] is True
    assert found["coverage"]["notes"] == snapshot


def test_where_the_other_run_is_not_believed_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(engine_process, "agree", lambda *_: False)
    monkeypatch.setattr(EngineProcess, "do", lambda _, place: (Runner().do(place), ""))
    found = report(tmp_path, convolved(tmp_path, 1e30))
    (birth,) = found["findings"]
    # of an operator on blocks no operand is guessed
    assert (birth["op"], birth["element"]["operands"]) == ("Conv", [])
    assert found["coverage"]["notes"] == snapshot
