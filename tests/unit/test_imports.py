"""What an import loads: nothing heavy with the package, no framework with the rooms that think."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import whynan

pytestmark = pytest.mark.process

PACKAGE = Path(whynan.__file__).parent
FRAMEWORKS = ("torch", "onnx", "onnxruntime", "rich", "jinja2")
THINKING = ("floats", "records", "ops", "expr", "source", "traces", "analysis", "rules")


def loaded(statement: str, watched: tuple[str, ...], package: Path = PACKAGE) -> set[str]:
    """Which of the watched modules a fresh interpreter has loaded after a statement."""
    program = f"import sys; sys.path.insert(0, {str(package.parent)!r}); {statement}; print(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.split()) & set(watched)


def copy_of_package(directory: Path) -> Path:
    """The package once more, to be spoilt."""
    return Path(shutil.copytree(PACKAGE, directory / "whynan", ignore=shutil.ignore_patterns("__pycache__")))


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded("import whynan", (*FRAMEWORKS, "pydantic", "numpy", "flint")) == set()


def test_public_names_are_found_on_first_use() -> None:
    names = ", ".join(f"whynan.{name}" for name in whynan.__all__)
    assert loaded(f"import whynan; whynan.__version__; {names}", ("whynan.api",)) == {"whynan.api"}
    assert set(whynan.__all__) <= set(dir(whynan))
    with pytest.raises(AttributeError, match="no attribute 'explian'"):
        whynan.explian  # noqa: B018


@pytest.mark.parametrize("module", ["models.onnx.opening", "run.onnx.engine_process"])
def test_a_model_is_opened_and_run_without_what_only_its_other_files_need(module: str) -> None:
    assert loaded(f"import onnx, whynan.{module}", ("onnx", "onnx_ir", "sympy")) == {"onnx"}


def test_the_process_of_an_engine_loads_no_torch_and_no_rules() -> None:
    needed = "import whynan.run.onnx.engine_process as process; process._load()"
    assert loaded(needed, (*FRAMEWORKS, "onnx_ir", "whynan.rules")) == {"onnx", "onnxruntime"}


@pytest.mark.parametrize("room", THINKING)
def test_a_room_that_thinks_loads_no_framework(room: str) -> None:
    assert loaded(f"import whynan.{room}", FRAMEWORKS) == set()


@pytest.mark.parametrize("room", ["", *THINKING])
def test_a_planted_import_is_seen(room: str, tmp_path: Path) -> None:
    spoilt = copy_of_package(tmp_path)
    with (spoilt / room / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("\nimport rich\n")
    assert loaded(f"import whynan.{room}".rstrip("."), FRAMEWORKS, spoilt) == {"rich"}
