"""How Python was called: its options, which are the program's too, and the code on its command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from whynan.run.script import command_line, interpreter_name

LINES: list[tuple[list[str], list[str], str | None]] = [
    ([], [], None),
    (["/bin/whynan", "run", "-c", "x"], [], None),
    (["-m", "whynan", "run", "-W", "error"], [], None),
    (["-mwhynan", "run"], [], None),
    (["-um", "whynan", "run"], ["-u"], None),
    (["-umwhynan", "run"], ["-u"], None),
    (["-W", "error", "-X", "dev", "-m", "whynan"], ["-W", "error", "-X", "dev"], None),
    (["-Werror", "-Xdev", "-m", "whynan"], ["-Werror", "-Xdev"], None),
    (["-bBW", "ignore::Warning", "whynan"], ["-bBW", "ignore::Warning"], None),
    (["-W", "-m", "-m", "whynan"], ["-W", "-m"], None),
    (["--check-hash-based-pycs", "always", "-O", "whynan"], ["--check-hash-based-pycs", "always", "-O"], None),
    (["-O", "--", "-whynan"], ["-O"], None),
    (["-", "-u"], [], None),
    (["-c", "print(1)", "-u"], [], "print(1)"),
    (["-cprint(1)", "-u"], [], "print(1)"),
    (["-Oc", "print(1)"], ["-O"], "print(1)"),
    (["-W"], ["-W", ""], None),
]


@pytest.mark.parametrize(("words", "options", "code"), LINES)
def test_options_end_where_the_program_is_named(words: list[str], options: list[str], code: str | None) -> None:
    assert command_line(words) == (options, code)


# Python's own view of the same lines, for those that it can run
@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    [["-bBW", "ignore::Warning"], ["-X", "dev", "-O"], ["--check-hash-based-pycs", "always", "-u"], ["-Wignore"]],
)
def test_options_that_are_found_make_python_the_same(words: list[str]) -> None:
    program = (
        "import sys, json; print(json.dumps([list(sys.flags), sys.warnoptions, sys._xoptions, sys.orig_argv[1:]]))"
    )
    first = json.loads(subprocess.run([sys.executable, *words, "-c", program], capture_output=True, check=True).stdout)
    found = command_line(first[-1]).options
    again = json.loads(subprocess.run([sys.executable, *found, "-c", program], capture_output=True, check=True).stdout)
    assert found == words
    assert again == first


def test_python_is_called_as_the_user_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-u", "-m", "whynan", "run", "train.py"])
    monkeypatch.setattr(sys, "argv", ["/site-packages/whynan/__main__.py", "run", "train.py"])
    assert interpreter_name() == ["python3", "-u"]


def test_the_installed_command_calls_its_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["/env/bin/python", "/env/bin/whynan", "run", "train.py"])
    monkeypatch.setattr(sys, "argv", ["/env/bin/whynan", "run", "train.py"])
    assert interpreter_name() == [sys.executable]
