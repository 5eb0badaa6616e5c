"""The command line of ``whynan run``: where whynan's options end and the program's arguments begin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from whynan.cli.main import main, whynan
from whynan.config import Options
from whynan.run.script import Program


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, and no options from elsewhere."""
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("WHYNAN_") and n != "WHYNAN_RAISE_INTERNAL"]:
        monkeypatch.delenv(name)
    for name in ("train.py", "-odd.py", "trainer.py"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Program, Options]]:
    """What would be run, instead of running it."""
    found: list[tuple[Program, Options]] = []

    def launch(program: Program, options: Options) -> int:
        found.append((program, options))
        return 7

    monkeypatch.setattr("whynan.run.runner.launch", launch)
    return found


def script(*arguments: str, name: str = "train.py") -> Program:
    return Program("script", name, arguments)


def module(*arguments: str, name: str = "trainer") -> Program:
    return Program("module", name, arguments)


def code(*arguments: str) -> Program:
    return Program("code", "x = 1", arguments)


LINES: list[tuple[list[str], Program, dict[str, Any]]] = [
    (["train.py"], script(), {}),
    (
        ["train.py", "--json", "x", "-m", "--help", "-h", "--", "-c"],
        script("--json", "x", "-m", "--help", "-h", "--", "-c"),
        {},
    ),
    (["--", "train.py", "--", "-x"], script("--", "-x"), {}),
    (["--", "-odd.py"], script(name="-odd.py"), {}),
    (["-", "a"], script("a", name="-"), {}),
    (["--quiet", "--json", "-m", "train.py"], script(), {"quiet": True, "json": "-m"}),
    (["--json=-c", "train.py"], script(), {"json": "-c"}),
    (["-m", "trainer"], module(), {}),
    (["-m", "trainer", "--json", "x", "--", "-m"], module("--json", "x", "--", "-m"), {}),
    (["-mtrainer", "--help"], module("--help"), {}),
    (["--all", "-m", "trainer", "-h"], module("-h"), {"all_": True}),
    (["--only", "-m", "-m", "trainer"], module(), {"only": "-m"}),
    (["-c", "x = 1"], code(), {}),
    (["-c", "x = 1", "-c", "--quiet", ""], code("-c", "--quiet", ""), {}),
    (["-cx = 1", "-"], code("-"), {}),
    (["train.py", "\udcff"], script("\udcff"), {}),
    (
        ["--on-nonfinite", "raise", "--pdb", "--start-step", "3", "--steps", "2", "--only", "head", "train.py"],
        script(),
        {"on_nonfinite": "raise", "pdb": True, "start_step": 3, "steps": 2, "only": "head"},
    ),
    (["--mode", "watch", "--sync", "deferred", "train.py"], script(), {"mode": "watch", "sync": "deferred"}),
    (
        ["--mode", "trace", "--strict", "--redact", "--memory", "1GiB", "train.py"],
        script(),
        {"mode": "trace", "strict": True, "redact": True, "memory": 1 << 30},
    ),
]


@pytest.mark.parametrize(("line", "program", "options"), LINES, ids=[" ".join(line) for line, *_ in LINES])
def test_options_end_where_the_program_is_named(
    line: list[str], program: Program, options: dict[str, Any], launched: list[tuple[Program, Options]]
) -> None:
    assert main(["run", *line]) == 7
    assert launched == [(program, Options(**options))]


def test_options_of_the_directory_and_the_environment_hold(
    here: Path, launched: list[tuple[Program, Options]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "pyproject.toml").write_text(
        '[tool.whynan]\nquiet = true\non_nonfinite = "continue"\nstart_step = 2\nsteps = 9\nonly = "head"\n'
    )
    monkeypatch.setenv("WHYNAN_STEPS", "5")
    monkeypatch.setenv("WHYNAN_SYNC", "step")
    assert main(["run", "--only", "tail", "train.py"]) == 7
    assert launched[0][1] == Options(quiet=True, on_nonfinite="continue", start_step=2, steps=5, only="tail")


REFUSED = {
    "a module and code": ["-m", "trainer", "-c", "x"],
    "a module without a name": ["--quiet", "-m"],
    "code that is missing": ["-c"],
    "an option that is none": ["--jsn", "x", "train.py"],
    "an option without its value": ["--json"],
    "a debugger where nothing stops": ["--pdb", "--on-nonfinite", "continue", "train.py"],
    "control characters": ["--on-nonfinite", "\x1b[2J", "train.py"],
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused(
    case: str,
    launched: list[tuple[Program, Options]],
    capsys: pytest.CaptureFixture[str],
    snapshot: SnapshotAssertion,
) -> None:
    status = main(["run", *REFUSED[case]])
    shown = capsys.readouterr()
    if case == "a module and code":
        # what follows the module is the module's
        assert launched == [(module("-c", "x"), Options())]
        return
    assert (status, shown.out, launched) == (2, "", [])
    assert shown.err == snapshot


def test_the_help_has_examples(snapshot: SnapshotAssertion) -> None:
    result = CliRunner().invoke(whynan, ["run", "--help"], prog_name="whynan", terminal_width=100)
    assert result.exit_code == 0
    assert result.output == snapshot


# -- what starting costs ---------------------------------------------------------------------------------------------

HEAVY = ("torch", "numpy", "pydantic", "rich", "onnx", "jinja2", "whynan.records", "whynan.capture")
LOADED = """
import json, sys
from whynan.cli.main import main
{before}
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(list(sys.modules)))
"""


def loaded(*arguments: str, before: str = "") -> set[str]:
    """The modules that a command has loaded when it is done."""
    command = [sys.executable, "-c", LOADED.format(before=before), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["run"], ["nonsense"]])
def test_help_and_refusals_load_nothing_heavy(arguments: list[str]) -> None:
    assert loaded(*arguments).isdisjoint(HEAVY)


@pytest.mark.process
def test_to_wait_for_a_program_takes_nothing_heavy() -> None:
    assert loaded("run", "--quiet", "-c", "pass").isdisjoint(HEAVY)


@pytest.mark.process
def test_to_say_that_there_was_no_torch_takes_nothing_heavy() -> None:
    assert loaded("run", "-c", "pass").isdisjoint(HEAVY)


@pytest.mark.process
def test_an_import_of_something_heavy_would_be_seen() -> None:
    assert "rich" in loaded("--help", before="import rich")
