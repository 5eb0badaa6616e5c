"""The examples that export: what a person sees of them, and that the mend mends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.readme import ROOT, blocks

NAMES = ("istft_export", "onnx_precision")


def export(name: str, folder: Path, *options: str) -> str:
    """What the program prints."""
    command = [sys.executable, f"examples/{name}/export.py", "--to", str(folder), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_shows_what_the_program_prints(name: str, tmp_path: Path) -> None:
    printed = export(name, tmp_path)
    readme = (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")
    assert printed == blocks(readme)["plain"]
    assert printed.count("NaN") == 1
    assert len(list(tmp_path.glob("*.onnx"))) == 2


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_with_the_mend_nothing_is_bad(name: str, tmp_path: Path) -> None:
    lines = export(name, tmp_path, "--fixed").splitlines()
    assert len(lines) in (3, 4)
    assert not any("NaN" in line for line in lines)
    assert len({line[17 if name == "istft_export" else 30 :].strip() for line in lines}) == 1
