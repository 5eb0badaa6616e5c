"""The code on Python's command line: its expressions are found as those of a file are, and other code's are not."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import json, sys
from whynan.source import positions, operand_expressions, resolve

def here():
    frame = sys._getframe(1)
    site = resolve(frame.f_code, frame.f_lasti)
    return [site.line, site.column, site.code]

{keep}
found = {{"module": (1, here())[1]}}
def inside():
    return [here() for _ in range(1)][0]
found["function"] = inside()
found["several"] = (
    here(
    )
)
exec("\\n\\n\\n\\n\\nfound['other'] = here()", globals())
exec("found['same line'] = here()", globals())
found["unicode"] = ["é", here()][1]
found["lines"] = [positions.line_of_command(n) for n in (0, 1, 2, 10_000)]
sys.stdout.write(json.dumps(found))
"""
KEPT = "positions.set_command_source(sys.orig_argv[-1])"


def found(text: str) -> dict[str, Any]:
    """What a program on the command line finds of itself."""
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def test_the_code_on_the_command_line_has_its_expressions() -> None:
    text = PROGRAM.format(keep=KEPT)
    lines = text.split("\n")
    told = found(text)
    for name, code in (("module", "here()"), ("function", "here()"), ("unicode", "here()")):
        line, column, expression = told[name]
        assert expression == code
        assert lines[line - 1][column - 1 :].startswith(code)
    assert told["several"][2] == "here( )"
    assert told["lines"] == [None, "", "import json, sys", None]


def test_other_code_without_a_file_has_none() -> None:
    told = found(PROGRAM.format(keep=KEPT))
    assert told["other"] == [6, None, None]
    assert told["same line"] == [1, None, None]


def test_what_nobody_keeps_is_not_known() -> None:
    told = found(PROGRAM.format(keep="positions.set_command_source(None)"))
    assert told["module"][1:] == [None, None]
    assert told["lines"] == [None] * 4


def test_another_text_is_not_taken_for_the_code() -> None:
    told = found(PROGRAM.format(keep='positions.set_command_source(sys.orig_argv[-1].replace("é", "ü"))'))
    assert told["unicode"][2] is None


@pytest.mark.parametrize("text", ["def broken(", "x = 1\\0", "x = '\\ud800'"])
def test_what_python_could_not_run_is_passed_over(text: str) -> None:
    told = found(PROGRAM.format(keep=f'positions.set_command_source("{text}")'))
    assert told["module"][1:] == [None, None]


def test_a_warning_of_the_compilers_comes_once() -> None:
    program = PROGRAM.format(keep=KEPT) + "\nif sys is 'x': pass"
    result = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True)
    assert result.stderr.count("SyntaxWarning") == 1
