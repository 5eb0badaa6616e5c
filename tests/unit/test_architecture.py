"""The rooms import each other as the contracts in pyproject.toml say, and in no new circle; both can be broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import whynan
from tests.unit.architecture import circles, folder_sizes, import_graph, line_count

PACKAGE = Path(whynan.__file__).parent
CONTRACTS = Path(__file__).parents[2] / "pyproject.toml"

LINES = 100_250
"""The source does not grow unnoticed: whoever makes it smaller lowers this; a capability raises it by its own lines."""
MODULES_IN_A_FOLDER = 14


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


@pytest.mark.process
def test_the_contracts_hold() -> None:
    result = lint_imports(PACKAGE.parent)
    assert result.returncode == 0, result.stdout
    assert "0 broken" in result.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("file", "statement", "contract"),
    [
        ("errors.py", "import whynan.config", "rooms import downwards only"),
        ("records/planted.py", "from whynan.analysis import births", "rooms import downwards only"),
        ("traces/planted.py", "import whynan.expr", "rooms import downwards only"),
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


def test_no_imports_go_in_a_circle() -> None:
    assert circles(import_graph(PACKAGE)) == []


def test_no_folder_is_crowded() -> None:
    assert {f: n for f, n in folder_sizes(PACKAGE).items() if n > MODULES_IN_A_FOLDER} == {}


def test_the_source_does_not_grow() -> None:
    assert line_count(PACKAGE) <= LINES


@pytest.mark.parametrize(
    "closing",
    [
        "from small.one.a import A",
        "import small.one.a",
        "from small.one import a",
        "from ..one.a import A",
        "from ..one import a",
        "def late():\n    from small.one.a import A",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from small.one.a import A",
    ],
)
def test_a_planted_circle_is_found(closing: str, tmp_path: Path) -> None:
    texts = {"__init__": "", "one/__init__": "", "one/a": "import small.b", "b": "from small.two import c", "two/c": ""}
    package = written(tmp_path / "small", {**texts, "two/__init__": ""})
    assert circles(import_graph(package)) == []
    written(package, {"two/c": closing})
    assert circles(import_graph(package)) == [["small.b", "small.one.a", "small.two.c"]]


def test_a_circle_through_a_package_is_found(tmp_path: Path) -> None:
    texts = {
        "__init__": "",
        "one/__init__": "from small.one.a import A",
        "one/a": "",
        "one/b": "from small.one import A",
    }
    package = written(tmp_path / "small", texts)
    assert circles(import_graph(package)) == []
    written(package, {"one/a": "from . import b"})
    assert circles(import_graph(package)) == [["small.one", "small.one.a", "small.one.b"]]


def test_two_circles_are_two(tmp_path: Path) -> None:
    texts = {
        "__init__": "",
        "a": "import small.b",
        "b": "import small.a, small.c",
        "c": "import small.d",
        "d": "import small.c",
    }
    package = written(tmp_path / "small", texts)
    assert circles(import_graph(package)) == [["small.a", "small.b"], ["small.c", "small.d"]]


@pytest.mark.breadth
def test_a_circle_planted_in_the_package_is_one_more(copy: Path) -> None:
    texts = {"planted": "from whynan.records import seed", "seed": "import whynan.records.planted"}
    written(copy / "records", texts)
    assert ["whynan.records.planted", "whynan.records.seed"] in circles(import_graph(copy))


def test_planted_modules_crowd_their_folder(tmp_path: Path) -> None:
    texts = {"__init__": "", "one/__init__": "", "rules/__init__": ""}
    many = {f"{folder}/m{n}": "1\n2\n" for folder in ("one", "rules", "rules/wn1") for n in range(15)}
    package = written(tmp_path / "small", {**texts, **many, "top": ""})
    assert folder_sizes(package) == {".": 1, "one": 15}
    assert line_count(package) == 90


def written(package: Path, texts: dict[str, str]) -> Path:
    """A package with these modules."""
    for name, text in texts.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package
