"""A model larger than a file of protobuf may be, its weights in several files: looked at within its memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.full

SIDE = 14_336
LAYERS = 3
"""Square matrices of float32, each in a file of its own: 2.47 GB in all."""
GIB = 1 << 30

RUN = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps([done.returncode, peak, done.stdout, done.stderr]))
"""
BARE = """
import sys, numpy as np, onnxruntime
session = onnxruntime.InferenceSession("large.onnx", providers=["CPUExecutionProvider"])
session.run(None, {"x": np.load("x.npy")})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A chain of products with a logarithm at its end; the files of the weights are removed with it."""
    found = tmp_path_factory.mktemp("large")
    free = os.statvfs(found).f_bavail * os.statvfs(found).f_frsize
    if free < 8 * GIB:
        pytest.skip("not enough room on the disk")
    rows = np.random.default_rng(0).normal(0, SIDE**-0.5, (256, SIDE)).astype(np.float32)
    graph = helper.make_graph([], "large", [], [])
    value = "x"
    for number in range(LAYERS):
        name = f"w{number}"
        with open(found / f"{name}.bin", "wb") as file:
            for _ in range(SIDE // len(rows)):
                file.write(rows.tobytes())
        tensor = graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{name}.bin")
        graph.node.append(helper.make_node("MatMul", [value, name], [f"h{number}"], f"product{number}"))
        value = f"h{number}"
    graph.node.append(helper.make_node("Abs", [value], ["a"], "size"))
    graph.node.append(helper.make_node("Log", ["a"], ["y"], "logarithm"))
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIDE]))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, SIDE]))
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), found / "large.onnx"
    )
    yield found
    for file in found.glob("w*.bin"):
        file.unlink()


def peaked(folder: Path, *command: str) -> tuple[int, int, str]:
    """The exit status of a command, the greatest memory of it or a process of its, and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command], cwd=folder, capture_output=True, text=True, timeout=1200, check=True
    )
    status, peak, out, err = json.loads(done.stdout)
    return status, peak, out + err


@pytest.mark.parametrize("given", ["healthy", "bad"])
def test_a_model_of_several_files_is_looked_at(given: str, folder: Path) -> None:
    x = np.zeros((1, SIDE), np.float32) if given == "bad" else np.ones((1, SIDE), np.float32)
    np.save(folder / "x.npy", x)
    status, bare, said = peaked(folder, sys.executable, "-c", BARE)
    assert status == 0, said
    memory = 1 * GIB
    whynan = [sys.executable, "-m", "whynan", "onnx", "large.onnx", "-i", "x=x.npy"]
    status, peak, said = peaked(folder, *whynan, "--memory", str(memory), "--json", "report.json")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    told = [(f["rule"], f["node"], f["element"]["count"]) for f in report["findings"]]
    assert (status, told) == ((1, [("WN201", "logarithm", SIDE)]) if given == "bad" else (0, [])), said
    assert report["run"]["inference"]["bit_equal"] is True
    assert peak < bare + memory
