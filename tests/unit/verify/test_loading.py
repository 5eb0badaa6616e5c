"""A program that is loaded with another text of one of its files runs that text, and the file stays as it is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from whynan.verify.in_place.instrument import every_function, instrument_functions

LOADING = """
import sys
from whynan.run.script import Program
from whynan.verify.in_place.instrument import Loaded

path, kind, what, *arguments = sys.argv[1:]
text = open(path).read().replace("'first'", "'other'")
loaded = Loaded({path: text})
loaded.install()
program = Program(kind, what, tuple(arguments))
program.enter()
program.execute(loaded.code_of)
"""


def ran(folder: Path, path: str, *arguments: str) -> str:
    """What a program prints that is loaded with another text of a file."""
    command = [sys.executable, "-c", LOADING, str(folder / path), *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=True).stdout


MAIN = "import sys\nprint('first', __name__, sys.argv[1:], flush=True)\n"


@pytest.mark.process
@pytest.mark.parametrize("arguments", [("script", "main.py", "-x"), ("module", "main", "-x")])
def test_a_main_program_runs_another_text(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(MAIN, encoding="utf-8")
    assert ran(tmp_path, "main.py", *arguments) == "other __main__ ['-x']\n"
    assert (tmp_path / "main.py").read_text() == MAIN


@pytest.mark.process
def test_an_imported_module_runs_another_text(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("def say():\n    print('first', flush=True)\n", encoding="utf-8")
    (tmp_path / "main.py").write_text("from part import say\nsay()\n", encoding="utf-8")
    assert ran(tmp_path, "part.py", "script", "main.py") == "other\n"


TEXT = """\
x = 1


def outer(y):
    def inner(z):
        return z + y
    return inner(y)
"""


def test_several_functions_tell_apart() -> None:
    tree, made = instrument_functions(TEXT, [1, 6, 7, 6])
    assert [one.function for one in made] == [None, "outer", "outer.inner"]
    text = ast.unparse(tree)
    assert [text.count(f"{name}(") for name in ("_whynan_visit", "_whynan_visit_1", "_whynan_visit_2")] == [2, 2, 1]
    assert every_function(TEXT) == [1, 5, 6]


def test_a_function_that_looks_at_its_names_is_left_out() -> None:
    _, made = instrument_functions(TEXT.replace("z + y", "locals()"), [1, 6])
    assert [one.function for one in made] == [None]
