"""``whynan onnx`` as a command, and small models for it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from whynan.cli.main import main

WHYNAN = (sys.executable, "-m", "whynan")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}


@dataclass(frozen=True)
class Ran:
    """A run of the command: its exit status, what it wrote, its report."""

    status: int
    out: str
    err: str
    report: dict[str, Any] | None


def run(folder: Path, *arguments: str) -> Ran:
    """Run the command in a folder, where it finds the model by its name; only its engine has a process of its own."""
    path, asked = _asked(folder, arguments)
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    with chdir(folder), patch.dict(os.environ, ENVIRONMENT), redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        status = main(asked)
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # pyright: ignore[reportAttributeAccessIssue]
    return Ran(status, out, err, _written(path))


def run_apart(folder: Path, *arguments: str) -> Ran:
    """The same by ``python -m whynan``."""
    path, asked = _asked(folder, arguments)
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        [*WHYNAN, *asked], capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr, _written(path))


def _asked(folder: Path, arguments: tuple[str, ...]) -> tuple[Path, list[str]]:
    path = folder / "report.json"
    path.unlink(missing_ok=True)
    return path, ["onnx", *arguments, *([] if "--json" in arguments else ["--json", str(path)])]


def _written(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def model(folder: Path, nodes: list[Any], inputs: str, outputs: str, *constants: tuple[str, Any]) -> str:
    """A model of some nodes between float tensors of 2 x 3, in a folder; its file name."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in inputs.split()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(made, folder / "small.onnx")
    return "small.onnx"
