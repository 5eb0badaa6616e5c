"""The scaffold of a rule: clean from the start, failing until it is filled in, and never over what exists."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whynan
from whynan.rules.catalogue import rules

ROOT = Path(__file__).parents[2]
PACKAGE = Path(whynan.__file__).parent
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "new_rule.py"))
main: Callable[[list[str], Path], int] = SCRIPT["main"]
NEW = ["WN799", "made-up"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project once more, as far as a rule needs it."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "whynan", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests" / "rules").mkdir(parents=True)
    for name in ("conftest.py", "totals.py"):
        shutil.copy(ROOT / "tests" / "rules" / name, tmp_path / "tests" / "rules")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A tool, on the copy."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.process
def test_what_it_writes_passes_the_linters_and_fails_its_test(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(NEW, project) == 0
    rule, test = capsys.readouterr().out.splitlines()[:2]
    assert (rule, test) == ("src/whynan/rules/wn7/wn799_made_up.py", "tests/rules/test_wn799_made_up.py")
    for command in (
        ["ruff", "check", "--no-cache"],
        ["ruff", "format", "--no-cache", "--check"],
        ["pyright", "--pythonpath", sys.executable],
    ):
        checked = run(project, *command, rule, *([test] if command[0] == "ruff" else []))
        assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = run(project, "pytest", "-q", "-p", "no:cacheprovider", test)
    assert tested.returncode == 1, tested.stdout
    assert "2 failed" in tested.stdout


@pytest.mark.full
def test_filled_in_it_passes(project: Path) -> None:
    assert main(NEW, project) == 0
    rule = project / "src" / "whynan" / "rules" / "wn7" / "wn799_made_up.py"
    test = project / "tests" / "rules" / "test_wn799_made_up.py"
    rule.write_text(rule.read_text().replace('"TODO"', '"log"').replace("OPERATION", "STRUCTURE"))
    text = test.read_text()
    for what, program in (("a program", "torch.log(x)"), ("the same", "torch.log1p(x)")):
        start = text.index(f'raise NotImplementedError(f"TODO: {what}')
        text = text[:start] + f"return {program}" + text[text.index("\n", start) :]
    test.write_text(text)
    tested = run(project, "pytest", "-q", "-p", "no:cacheprovider", "--snapshot-update", str(test))
    assert tested.returncode == 0, tested.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["WN201", "made-up"], "WN201 exists already: WN201"),
        (["WN799", "log-of-zero"], "log-of-zero exists already: WN201"),
        (["WN000", "made-up"], "'WN000' is no code of a rule"),
        (["ACME201", "made-up"], "'ACME201' is no code of a rule"),
        (["wn799", "made-up"], "'wn799' is no code of a rule"),
        (["WN799", "../made-up"], "'../made-up' is no name"),
        (["WN799", "Made_Up"], "'Made_Up' is no name"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    arguments: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, tmp_path) == 2
    assert capsys.readouterr().err.startswith(why)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [NEW, ["WN799", "another"], ["WN798", "made-up"]])
def test_what_was_written_before_is_not_written_over(
    arguments: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(NEW, project) == 0
    capsys.readouterr()
    before = sorted(path for path in project.rglob("*made_up*"))
    assert main(arguments, project) == 2
    assert "exists already: wn799_made_up.py" in capsys.readouterr().err
    assert sorted(path for path in project.rglob("*made_up*")) == before


def test_the_new_code_is_free() -> None:
    known: Any = {rule.code for rule in rules()}
    assert NEW[0] not in known
