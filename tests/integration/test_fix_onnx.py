"""``whynan fix`` on the report of an ONNX model: the repaired model is written, and a repair of one's own judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.defects import DEFECTS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
NAME = "log_softmax"


def whynan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whynan", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT, check=False)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of a failing model, with its inputs and its report."""
    folder = tmp_path_factory.mktemp("ran")
    defect = DEFECTS[NAME]()
    onnx.save(defect.model, folder / "model.onnx")
    np.savez(folder / "failing.npz", **defect.failing)
    np.savez(folder / "healthy.npz", **defect.healthy)
    done = whynan(folder, "onnx", "model.onnx", "-i", "failing.npz", "--quiet", "--json", "report.json")
    assert done.returncode == 1, done.stderr
    return folder


@pytest.fixture(scope="module")
def fixed(here: Path) -> Path:
    """The repaired model that the report offers."""
    done = whynan(here, "fix", "report.json", "--output", "fixed.onnx")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fixed.onnx is the model with ")
    return here / "fixed.onnx"


def _document(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


@pytest.mark.full
def test_the_report_has_a_verified_fix(here: Path) -> None:
    (finding,) = _document(here, "report.json")["findings"]
    assert finding["fixes"][0]["verdict"]["status"] == "verified"
    assert "verified" in whynan(here, "fix", "report.json").stdout


def test_the_repaired_model_is_clean_and_a_second_repair_of_it_has_nothing_to_do(here: Path, fixed: Path) -> None:
    onnx.checker.check_model(fixed, full_check=True)
    found = onnxruntime.InferenceSession(fixed).run(None, DEFECTS[NAME]().failing)
    assert all(np.isfinite(value).all() for value in found)
    done = whynan(here, "onnx", fixed.name, "-i", "failing.npz", "--quiet", "--json", "clean.json")
    assert (done.returncode, _document(here, "clean.json")["verdict"]) == (0, "clean")
    done = whynan(here, "fix", "clean.json", "--output", "twice.onnx")
    assert (done.returncode, (here / "twice.onnx").exists()) == (2, False)


def test_a_repair_of_ones_own_is_verified(here: Path, fixed: Path) -> None:
    inputs = ("-i", "failing.npz")
    done = whynan(here, "fix", "report.json", *inputs, "--try", fixed.name, "--json", "verdict.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _document(here, "verdict.json")["verdict"]["status"] == "verified"


def test_a_wrong_repair_is_rejected(here: Path, fixed: Path) -> None:
    wrong = onnx.load(fixed)
    (node,) = (node for node in wrong.graph.node if node.op_type == "LogSoftmax")
    node.attribute[0].i = 0
    onnx.save(wrong, here / "wrong.onnx")
    done = whynan(here, "fix", "report.json", "-i", "failing.npz", "--try", "wrong.onnx")
    assert done.returncode == 1, done.stderr
    assert "rejected" in done.stdout


def test_on_inputs_that_do_not_fail_nothing_is_said(here: Path, fixed: Path) -> None:
    done = whynan(here, "fix", "report.json", "-i", "healthy.npz", "--try", fixed.name)
    assert done.returncode == 2
    assert "unverified" in done.stdout
    assert "does not fail" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-i", "failing.npz", "--try", "missing.onnx"), "missing.onnx"),
        (("--output", "model.onnx"), "model.onnx is there already"),
        (("--apply",), "no verified fix of the source"),
        (("--output", "other.onnx", "--choose", "99"), "there is no fix 99"),
    ],
)
def test_what_cannot_be_done_says_why_and_leaves_nothing(here: Path, options: tuple[str, ...], said: str) -> None:
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    done = whynan(here, "fix", "report.json", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def test_of_another_version_of_the_model_nothing_is_made(here: Path, tmp_path: Path) -> None:
    for name in ("report.json", "model.onnx"):
        (tmp_path / name).write_bytes((here / name).read_bytes())
    model = onnx.load(tmp_path / "model.onnx")
    model.producer_name = "another"
    onnx.save(model, tmp_path / "model.onnx")
    done = whynan(tmp_path, "fix", "report.json", "--output", "fixed.onnx")
    assert done.returncode == 2
    assert "is not the model of the report" in done.stderr
    assert not (tmp_path / "fixed.onnx").exists()
