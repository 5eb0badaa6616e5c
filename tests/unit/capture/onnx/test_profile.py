"""What is read of ONNX Runtime's profile, and said of where the nodes ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx

from tests.unit.capture.onnx.told import model, node, saved
from whynan.capture.onnx.graph.executed import Executable
from whynan.capture.onnx.runner import remarks
from whynan.capture.onnx.sessions import EngineSettings, Profile, read_profile
from whynan.report.notes import sentences

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def event(name: str, op: str, began: int, took: int, provider: str = CPU) -> dict[str, Any]:
    said = {"op_name": op, "provider": provider, "output_size": "8"}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": began, "dur": took, "args": said}


def graph(tmp_path: Path, *names: str) -> Executable:
    nodes = [node("Neg", f"v{i}", f"v{i + 1}", name) for i, name in enumerate(names)]
    return Executable(onnx.load(saved(model(nodes, ["v0"], [f"v{len(names)}"]), tmp_path)), tmp_path)


def read(tmp_path: Path, executable: Executable, *events: dict[str, Any]) -> Profile:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps([{"cat": "Session", "name": "model_run"}, *events]))
    return read_profile(path, executable)


def test_nodes_without_a_name_are_told_by_their_order(tmp_path: Path) -> None:
    executable = graph(tmp_path, "", "", "last")
    found = read(
        tmp_path, executable, event("last", "Neg", 9, 1), event("Neg_0", "Neg", 1, 2), event("Neg_1", "Neg", 4, 2, CUDA)
    )
    assert [found.kernels[i].provider for i in range(3)] == [CPU, CUDA, CPU]
    assert found.kernels[0].bytes == 8
    assert found.placement == {CPU: 2, CUDA: 1}


def test_what_runs_within_a_node_is_of_its_body(tmp_path: Path) -> None:
    executable = graph(tmp_path, "a", "b")
    inner = [event("inside", "Log", 3, 1), event("inside", "Log", 5, 1)]
    found = read(tmp_path, executable, event("a", "Neg", 1, 9), *inner, event("b", "Neg", 11, 1))
    assert sorted(found.kernels) == [0, 1]
    assert list(found.inner) == ["inside"]
    assert found.placement == {CPU: 3}


def test_nodes_that_run_beside_each_other_are_told_by_name(tmp_path: Path) -> None:
    executable = graph(tmp_path, "a", "b")
    found = read(tmp_path, executable, event("b", "Neg", 1, 9, CUDA), event("a", "Neg", 2, 9))
    assert {i: kernel.provider for i, kernel in found.kernels.items()} == {0: CPU, 1: CUDA}


def test_a_profile_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert read_profile(tmp_path / "missing.json", graph(tmp_path, "a")).placement == {}
    (tmp_path / "broken.json").write_text("[{")
    assert read_profile(tmp_path / "broken.json", graph(tmp_path, "a")) == Profile()


def test_what_ran_elsewhere_than_asked_is_said(tmp_path: Path) -> None:
    executable = graph(tmp_path, "a", "b")
    found = read(tmp_path, executable, event("a", "Neg", 1, 1, CUDA), event("b", "Neg", 3, 1))
    settings = EngineSettings("m.onnx", providers=((CUDA, {"device_id": "0"}), CPU))

    class Ran:
        emulated = 0
        overflows = ()

    ran: Any = Ran()
    assert list(sentences(remarks(settings, (CUDA, CPU), found, ran))) == [
        f"{CUDA} did not run all of it: 1 of 2 nodes on {CPU}",
    ]
    assert list(remarks(EngineSettings("m.onnx"), (CPU,), Profile(), ran)) == []
