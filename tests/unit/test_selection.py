"""The short run of the tests and the rest: which test is in which, and that a command has one in the short run."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.selection import SEEDS, mark_breadth, mark_qualities, refuse_split_snapshots, run_of, starts_python
from whynan.cli.main import COMMANDS

TESTS = Path(__file__).parents[1]
SMOKE = re.compile(r'^@pytest\.mark\.smoke\("(\w+)"\)$', re.MULTILINE)


@dataclass
class Case:
    """A test as pytest collects it, with its marks."""

    nodeid: str
    marks: list[str] = field(default_factory=list)
    fixturenames: tuple[str, ...] = ()
    callspec: Any = None

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.name)


@dataclass
class Parameters:
    """The parameters of a case."""

    params: dict[str, object]


def cases(name: str, values: list[object], **more: Any) -> list[Any]:
    """The cases of a test that differ in one parameter."""
    return [Case(f"test.py::test_it[{value}]", callspec=Parameters({name: value}), **more) for value in values]


@pytest.mark.parametrize(
    ("marks", "run"),
    [
        ([], "short"),
        (["process"], "rest"),
        (["proof"], "rest"),
        (["quality"], "rest"),
        (["breadth"], "rest"),
        (["process", "smoke"], "short"),
        (["full"], "full"),
        (["process", "full"], "full"),
    ],
)
def test_a_test_is_in_one_run(marks: list[str], run: str) -> None:
    assert run_of(Case("test.py::test_it", marks)) == run  # pyright: ignore[reportArgumentType]


def test_dtypes_beside_float32_are_breadth() -> None:
    some = cases("dtype", ["torch.float16", "torch.float32", "torch.float64"])
    mark_breadth(some)
    assert [case.marks for case in some] == [["breadth"], [], ["breadth"]]


def test_dtypes_without_float32_stay_together() -> None:
    some = cases("dtype", ["torch.float16", "torch.bfloat16"])
    mark_breadth(some)
    assert [case.marks for case in some] == [[], []]


def test_seeds_after_the_first_are_breadth() -> None:
    some = cases("seed", [0, SEEDS - 1, SEEDS])
    mark_breadth(some)
    assert [case.marks for case in some] == [[], [], ["breadth"]]


def test_the_qualities_are_left_to_the_rest() -> None:
    some: list[Any] = [Case("tests/quality/test_healthy.py::test_it"), Case("tests/unit/test_quality.py::test_it")]
    mark_qualities(some)
    assert [case.marks for case in some] == [["quality"], []]


def test_the_cases_of_a_test_with_a_snapshot_stay_together() -> None:
    some = cases("dtype", ["float32", "float64"], fixturenames=("snapshot",))
    mark_breadth(some)
    assert [case.marks for case in some] == [[], []]


def test_a_snapshot_of_a_case_in_another_run_is_refused() -> None:
    first, second = cases("kind", ["a", "b"], fixturenames=("snapshot",))
    refuse_split_snapshots([first, second])
    second.marks.append("full")
    with pytest.raises(pytest.UsageError, match="in another run than its other cases"):
        refuse_split_snapshots([first, second])


def test_another_program_is_no_python() -> None:
    assert starts_python(None, [sys.executable, "-c", ""])
    assert starts_python(sys.executable, ["anything"])
    assert starts_python(None, [Path(sys.executable).with_name("whynan"), "run"])
    assert starts_python("/usr/bin/python3.12", ["python"])
    assert not starts_python(None, ["git", "apply", "python"])
    assert not starts_python(None, b"/bin/true")


def test_each_command_has_one_test_in_the_short_run() -> None:
    texts = (path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py")))
    assert sorted(name for text in texts for name in SMOKE.findall(text)) == sorted(COMMANDS)


@pytest.mark.process
def test_a_test_that_starts_python_and_does_not_say_so_fails(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, pytest\n"
        "def test_planted(): subprocess.run([sys.executable, '-c', ''], check=True)\n"
        "@pytest.mark.process\n"
        "def test_marked(): subprocess.run([sys.executable, '-c', ''], check=True)\n"
        "def test_another_program(): subprocess.run(['true'], check=True)\n"
    )
    (tmp_path / "test_planted.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-c", str(TESTS.parent / "pyproject.toml"),
         "--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(tmp_path)],
        cwd=TESTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "test_planted.py::test_planted starts Python: mark it `process`" in done.stdout
