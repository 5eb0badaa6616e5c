"""The rooms import each other as the contracts in pyproject.toml say, and the contracts can be broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import whynan

PACKAGE = Path(whynan.__file__).parent
CONTRACTS = Path(__file__).parents[2] / "pyproject.toml"


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Check the package that lies in a directory against the contracts."""
    program = "from importlinter.cli import lint_imports_command as command; command()"
    return subprocess.run(
        [sys.executable, "-c", program, "--config", str(CONTRACTS), "--no-cache"],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package once more, to be spoilt."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "whynan", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_contracts_hold() -> None:
    result = lint_imports(PACKAGE.parent)
    assert result.returncode == 0, result.stdout
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(
    ("file", "statement", "contract"),
    [
        ("errors.py", "import whynan.config", "rooms import downwards only"),
        ("records/planted.py", "from whynan.analysis import births", "rooms import downwards only"),
        ("traces/planted.py", "import whynan.source", "rooms import downwards only"),
        ("corner/__init__.py", "", "rooms import downwards only"),
        ("capture/torch/planted.py", "import whynan.rules", "capture knows neither analysis nor rules"),
        ("capture/planted.py", "def late():\n    import whynan.analysis", "capture knows neither analysis nor rules"),
        ("rules/planted.py", "import torch.nn", "the rooms that think load no framework"),
        ("floats/planted.py", "from rich import print", "the rooms that think load no framework"),
        ("ops/planted.py", "def late():\n    import onnx", "the rooms that think load no framework"),
    ],
)
def test_a_planted_import_breaks_its_contract(file: str, statement: str, contract: str, copy: Path) -> None:
    path = copy / file
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as handle:
        handle.write(f"\n{statement}\n")
    result = lint_imports(copy.parent)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout
