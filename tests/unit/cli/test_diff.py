"""``whynan diff`` as a command: its exit status, its document, and what it refuses in a line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from tests.unit.compare.models import mlp, numbers
from whynan.cli.diff import LEVELS
from whynan.cli.main import main
from whynan.report.json import schema
from whynan.run.comparison import settings


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with two models and an input, which is the current one."""
    monkeypatch.chdir(tmp_path)
    onnx.save(mlp(), "a.onnx")
    onnx.save(mlp(epsilon=1e-3), "b.onnx")
    np.savez("x.npz", x=numbers(4, 16))
    np.savez("two.npz", x=numbers(4, 16), y=numbers(2))


def test_the_status_tells_whether_they_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a.onnx", "a.onnx", "-i", "x.npz"]) == 0
    assert "clean: the two runs agree" in capsys.readouterr().out
    assert main(["diff", "a.onnx", "b.onnx", "-i", "x.npz"]) == 1
    assert "B parts from A at LayerNormalization norm" in capsys.readouterr().out


def test_the_document_is_of_its_schema() -> None:
    assert main(["diff", "a.onnx", "b.onnx", "--random", "0", "--json", "r.json", "--quiet"]) == 1
    document = json.loads(Path("r.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema()).validate(document)
    assert document["verdict"] == "divergent"
    assert document["findings"][0]["divergence"]["introduced"]["max_abs"] > 0
    assert document["coverage"]["aligned"] == {"values": 5, "of": 5, "by": {"name": 5}, "unaligned": []}
    assert [output["name"] for output in document["outputs"]] == ["y"]


@pytest.mark.parametrize(
    "option",
    [
        ["--b-opt-level", "none"],
        ["--b-dtype", "fp16"],
        ["--b-dtype", "bf16"],
        ["--b-dtype", "fp64"],
        ["--b-engine", "reference"],
        ["--b-provider", "CPU"],
    ],
)
def test_a_model_agrees_with_itself_under_a_setting(option: list[str]) -> None:
    assert main(["diff", "a.onnx", "-i", "x.npz", *option]) == 0


def test_the_levels_are_those_that_there_are() -> None:
    assert tuple(settings.LEVELS) == LEVELS


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.onnx"],
        ["a.onnx", "lost.onnx"],
        ["a.onnx", "b.onnx"],
        ["a.onnx", "b.onnx", "-i", "lost.npz"],
        ["a.onnx", "b.onnx", "-i", "x=two.npz"],
        ["a.onnx", "--b-provider", "abacus", "--random", "0"],
        ["a.onnx", "b.onnx", "--random", "0", "--json", "a.onnx"],
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(["diff", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == snapshot


@pytest.mark.process
@pytest.mark.smoke("diff")
def test_the_command_finds_a_function_in_the_current_directory() -> None:
    program = (
        "import torch\n\ndef make():\n    torch.manual_seed(0)\n    return torch.nn.Sequential(torch.nn.Linear(4, 3))\n"
    )
    Path("net.py").write_text(program, encoding="utf-8")
    np.savez("y.npz", input=numbers(2, 4))
    command = [sys.executable, "-m", "whynan", "diff", "net:make", "net:make", "-i", "y.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("clean: ")
