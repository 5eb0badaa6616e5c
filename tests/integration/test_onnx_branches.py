"""Births in the branches of ``torch.cond`` and the bodies of ``while_loop`` and ``scan``, as torch exports them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import copy

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.integration.test_onnx import run

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).parents[1] / "programs" / "branches.py"
# program, what x is, the rule, and the expression with the function that it stands in
BIRTHS = {
    "one branch": ("cond", "1", "WN202", "torch.log(scaled - 6)", "Cond.forward.positive"),
    "the other branch": ("cond", "-1", "WN102", "v / (v - v)", "Cond.forward.negative"),
    "an iteration of a loop": ("loop", "1e12", "WN701", "v * v", "Loop.forward.body"),
    "a row of a scan": ("scan", "-1", "WN201", "torch.log(carried)", "Scan.forward.step"),
}
HEALTHY = {"cond": "9", "loop": "1", "scan": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported models and their source."""
    found = tmp_path_factory.mktemp("branches")
    copy(PROGRAM, found)
    subprocess.run([sys.executable, PROGRAM.name], cwd=found, check=True, capture_output=True)
    return found


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
@pytest.mark.parametrize("name", BIRTHS)
def test_a_birth_in_a_body_is_told_at_its_line(
    name: str, engine: str, folder: Path, snapshot: SnapshotAssertion
) -> None:
    program, given, rule, code, function = BIRTHS[name]
    ran = run(folder, f"{program}.onnx", "-i", f"x={given}", "--engine", engine)
    assert ran.report is not None, ran.err
    first = ran.report["findings"][0]
    site = first["site"]
    assert (first["rule"], site["code"], site["function"]) == (rule, code, function)
    line = PROGRAM.read_text("utf-8").splitlines()[site["line"] - 1]
    assert line[site["column"] - 1 : site["end_column"] - 1] == code
    assert "/" in first["node"]
    if engine == "onnxruntime":
        assert ran.out.replace(str(folder), "FOLDER") == snapshot


@pytest.mark.parametrize("program", HEALTHY)
def test_without_a_bad_number_it_is_clean(program: str, folder: Path) -> None:
    ran = run(folder, f"{program}.onnx", "-i", f"x={HEALTHY[program]}")
    assert (ran.status, ran.report and ran.report["verdict"]) == (0, "clean"), ran.err
