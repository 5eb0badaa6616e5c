"""A program as it is named on the command line: how Python is told of it, and what is refused before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.errors import UsageError
from whynan.run.script import Kind, Program

SCRIPT = "import sys; print(*sys.argv[1:])\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with something of each kind."""
    monkeypatch.chdir(tmp_path)
    for name in ("script.py", "-odd.py", "folder/__main__.py", "package/__init__.py", "package/__main__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("" if name.endswith("__init__.py") else SCRIPT)
    (tmp_path / "package" / "inner.py").write_text(SCRIPT)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "__init__.py").write_text("")
    (tmp_path / "namespace").mkdir()
    (tmp_path / "namespace" / "part.py").write_text(SCRIPT)
    (tmp_path / "moving" / "elsewhere").mkdir(parents=True)
    (tmp_path / "moving" / "__init__.py").write_text("__path__.append(__path__[0] + '/elsewhere')\n")
    (tmp_path / "moving" / "elsewhere" / "far.py").write_text(SCRIPT)
    (tmp_path / "linked.py").symlink_to("script.py")
    os.mkfifo(tmp_path / "pipe.py")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", SCRIPT)
    return tmp_path


GOOD: list[tuple[Kind, str]] = [
    ("script", "script.py"),
    ("script", "./package/../script.py"),
    ("script", "linked.py"),
    ("script", "-odd.py"),
    ("script", "folder"),
    ("script", "app.zip"),
    ("module", "package"),
    ("module", "package.inner"),
    ("module", "namespace.part"),
    ("module", "moving.far"),
    ("module", "script"),
    ("module", "timeit"),
    ("code", "import sys; print(*sys.argv[1:])"),
]


@pytest.mark.process
@pytest.mark.parametrize(("kind", "what"), GOOD)
def test_what_is_accepted_python_runs(kind: Kind, what: str) -> None:
    program = Program(kind, what, ("-n", "1", "--", "-x") if what == "timeit" else ("a", "-b"))
    program.check()
    result = subprocess.run(
        [sys.executable, *program.command_line], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert result.stdout.strip() == "a -b" or what == "timeit", result.stderr


def test_standard_input_and_a_pipe_are_left_unread(here: Path) -> None:
    Program("script", "-").check()
    Program("script", "pipe.py").check()


def test_a_compiled_main_is_a_program_too(here: Path) -> None:
    import py_compile

    py_compile.compile(str(here / "script.py"), cfile=str(here / "bare" / "__main__.pyc"))
    Program("script", "bare").check()


REFUSED: dict[str, tuple[Kind, str]] = {
    "no file": ("script", "nothing.py"),
    "no name": ("script", ""),
    "a folder without a main": ("script", "bare"),
    "control characters": ("script", "\x1b[2J.py"),
    "no UTF-8": ("script", "\udcff.py"),
    "no module": ("module", "nothing"),
    "a file for a module": ("module", "script.py"),
    "a package without a main": ("module", "bare"),
    "no such part": ("module", "package.nothing"),
    "a part of no package": ("module", "script.inner"),
    "a relative module": ("module", ".package"),
    "an empty part": ("module", "package..inner"),
    "an empty module": ("module", ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_python_could_not_begin_to_run_is_refused(case: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UsageError) as caught:
        Program(*REFUSED[case]).check()
    assert str(caught.value) == snapshot


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_script_that_may_not_be_read_is_refused(here: Path) -> None:
    (here / "script.py").chmod(0)
    with pytest.raises(UsageError, match="cannot be read"):
        Program("script", "script.py").check()


def test_nothing_of_a_package_runs_before_the_program(here: Path) -> None:
    for name in ("package", "bare"):
        (here / name / "__init__.py").write_text("raise SystemExit('it ran')\n")
    Program("module", "package.inner").check()
    with pytest.raises(UsageError):
        Program("module", "bare.nothing").check()


def test_a_module_is_looked_for_where_python_looks(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # beside the script that runs whynan, Python does not look for it
    (here / "scripts").mkdir()
    (here / "scripts" / "beside.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(here / "scripts"), *sys.path[1:]])
    with pytest.raises(UsageError):
        Program("module", "beside").check()


def test_what_is_loaded_and_was_never_found_is_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(UsageError):
        Program("module", "__main__").check()


def test_what_somebodys_own_finder_finds_is_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object) -> ModuleSpec | None:
            return ModuleSpec(name, None) if name == "made_up" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    Program("module", "made_up").check()


def test_a_folder_that_was_removed_hides_no_module(here: Path) -> None:
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    Program("module", "timeit").check()
    with pytest.raises(UsageError):
        Program("module", "nothing").check()


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (Program("script", "a/train.py", ("--key", "secret")), "a/train.py"),
        (Program("module", "a.train", ("secret",)), "-m a.train"),
        (Program("code", "secret = 1"), "-c ..."),
    ],
)
def test_a_report_names_a_program_without_its_arguments(program: Program, name: str) -> None:
    assert program.name == name
