"""An instruction's site: the expression and nothing but the expression, wherever the code came from."""

from __future__ import annotations

import functools
import io
import linecache
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from whynan.records import Site
from whynan.source import operand_expressions, resolve

if TYPE_CHECKING:
    from tests.unit.source.conftest import Probe, Recorder

Sites = Callable[..., list[Site]]
Run = Callable[[str, str], "Recorder"]


def slice_of(text: str, site: Site) -> str:
    """What stands in a text from a site's start to its end, cut out without any of the code under test."""
    assert site.column is not None
    assert site.end_line is not None
    assert site.end_column is not None
    lines = io.StringIO(text, newline=None).read().split("\n")
    first, last = site.line - 1, site.end_line - 1
    if first == last:
        return lines[first][site.column - 1 : site.end_column - 1]
    middle = lines[first + 1 : last]
    return "\n".join([lines[first][site.column - 1 :], *middle, lines[last][: site.end_column - 1]])


# A program, and the expressions of its uses of x and y in the order of execution.
PROGRAMS: list[tuple[str, str, list[str]]] = [
    ("division", "a = x / y\n", ["x / y"]),
    ("parenthesised", "a = (x / y) / (x)\n", ["x / y", "(x / y) / (x)"]),
    ("augmented", "x /= y\n", ["x /= y"]),
    ("augmented attribute", "class A: pass\nA.v = x\nA.v /= y\n", ["A.v /= y"]),
    ("augmented item", "d = {0: x}\nd[0] /= y\n", ["d[0] /= y"]),
    ("methods", "a = y.sqrt().log()\n", ["y.sqrt()", "y.sqrt().log()"]),
    ("two on a line", "x / y; y / x\n", ["x / y", "y / x"]),
    ("call", "a = x(1, y=y)\n", ["x(1, y=y)"]),
    ("starred call", "a = x(*[1], **{})\n", ["x(*[1], **{})"]),
    ("call from C", "list(map(x, [1]))\n", ["list(map(x, [1]))"]),
    ("subscript", "a = x[0, 1:]\n", ["x[0, 1:]"]),
    ("item assignment", "x[1] = y\n", ["x[1]"]),
    ("property", "a = x.T\n", ["x.T"]),
    ("negation", "a = 1, -x\n", ["-x"]),
    ("comparison", "a = (x < y)\n", ["x < y"]),
    ("matrix product", "a = x @ y @ x\n", ["x @ y", "x @ y @ x"]),
    ("condition", "if x:\n    pass\n", ["x"]),
    ("while", "while x:\n    break\n", ["x"]),
    ("conditional expression", "a = 1 if x else 2\n", ["x"]),
    ("assertion", "assert x\n", ["x"]),
    ("chained condition", "if x and not y:\n    pass\n", ["x and not y", "x and not y"]),
    ("with", "with x.sqrt():\n    y / x\n", ["x.sqrt()", "x.sqrt()", "y / x"]),
    ("loop", "for a in x:\n    a / y\n", ["x", "a / y"]),
    ("lambda", "f = lambda v: v / y\nf(x)\n", ["v / y"]),
    ("comprehension", "[v / y for v in [x]]\n", ["v / y"]),
    ("generator", "any(v.log() for v in [x, y])\n", ["v.log()", "any(v.log() for v in [x, y])"]),
    ("decorator", "@x.log(2)\ndef f():\n    pass\n", ["x.log(2)", "x.log(2)"]),
    ("bare decorator", "@x\ndef f():\n    pass\n", ["x"]),
    ("default argument", "def f(a=x / y): pass\n", ["x / y"]),
    ("class body", "class A:\n    b = x / y\n", ["x / y"]),
    ("walrus", "(a := x / y)\n", ["x / y"]),
    ("f-string", "f'{x / y}'\n", ["x / y", "f'{x / y}'"]),
    (
        "f-string after text",
        "a = f'ä {1} {x / y} {y.log()}'\n",
        ["x / y", "f'ä {1} {x / y} {y.log()}'", "y.log()", "f'ä {1} {x / y} {y.log()}'"],
    ),
    ("f-strings in a row", "a = (f'ä {1}' '{{}}'\n     f'{{{x / y!r}')\n", ["x / y"]),
    ("f-string over lines", "a = f'''ä\n  {\n x / y!r}'''\n", ["x / y"]),
    ("tabs", "if 1:\n\ta = [0,\t x / y]\n", ["x / y"]),
    ("form feed", "\x0ca = x / y\n", ["x / y"]),
    ("non-ASCII before", "é, 名 = 'ñ🎉', x / y\n", ["x / y"]),
    ("non-ASCII inside", "größe = x\nz = größe / y\n", ["größe / y"]),
    ("multi-line call", "a = x(\n    1,\n    y,\n)\n", ["x( 1, y, )"]),
    ("multi-line operation", "a = (x\n     / y)\n", ["x / y"]),
    ("comments inside", "a = (x  # '('\n     # more\n     / y)\n", ["x / y"]),
    ("hash in a string", "a = x('#',\n  1)\n", ["x('#', 1)"]),
    ("backslash", "a = x \\\n    / y\n", ["x / y"]),
    (
        "chain over lines",
        "a = (x\n     .sqrt()\n     .log(\n       1,\n     ).T\n     .T)\n",
        ["x .sqrt()", "x .sqrt() .log( 1, )", "x .sqrt() .log( 1, ).T", "x .sqrt() .log( 1, ).T .T"],
    ),
    ("non-ASCII attribute over lines", "a = (x\n   .größe\n   (1))\n", ["x .größe (1)"]),
    ("string over lines", 'a = x("""a\nb""")\n', ['x("""a b""")']),
]


@pytest.mark.parametrize(("text", "expected"), [p[1:] for p in PROGRAMS], ids=[p[0] for p in PROGRAMS])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_the_site_is_the_expression(text: str, expected: list[str], newline: str, run_file: Sites) -> None:
    text = text.replace("\n", newline)
    sites = run_file(text)
    assert len(sites) == len(expected)
    for site, expression in zip(sites, expected, strict=True):
        assert site.file == "program.py"
        assert site.code == expression
        without_comments = re.sub(r"  # .*", "", slice_of(text, site))
        without_comments = re.sub(r"\n +#.*", "", without_comments)
        assert re.sub(r"\s*\\?\n\s*", " ", without_comments) == site.code


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("with x as a, \\\n     y:\n    1 + 1\n", ["with x as a, \\", "with x as a, \\"]),
        ("class A(metaclass=x):\n    b = 1\n", ["class A(metaclass=x):"]),
    ],
)
def test_a_statement_with_a_body_is_shown_by_its_line(text: str, lines: list[str], run_file: Sites) -> None:
    sites = run_file(text)
    assert [site.code for site in sites][-len(lines) :] == lines
    assert {site.column for site in sites[-len(lines) :]} == {None}


def test_columns_count_characters_from_one_and_end_exclusively(run_file: Sites) -> None:
    (site,) = run_file("\n\né = 'ñ🎉'; \tz = x / y # ü\n")
    assert (site.line, site.column, site.end_line, site.end_column) == (3, 16, 3, 21)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfa = '\xc3\xa9', x / y\n",
        b"# coding: latin-1\na = '\xe9', x / y\n",
    ],
    ids=["byte order mark", "latin-1"],
)
def test_the_encoding_of_a_file_is_its_own(data: bytes, run_file: Sites) -> None:
    (site,) = run_file(data)
    assert (site.code, site.column, site.end_column) == ("x / y", 10, 15)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("x / y\n", "<module>"),
        ("def f():\n    x / y\nf()\n", "f"),
        ("def f():\n    def g():\n        x / y\n    g()\nf()\n", "f.g"),
        ("class A:\n    def forward(self):\n        x / y\nA().forward()\n", "A.forward"),
        ("def f():\n    return (lambda: x / y)()\nf()\n", "f.<lambda>"),
        ("def f():\n    return [[x / v for v in [y]] for _ in [1]]\nf()\n", "f"),
        ("{x / v for v in [y]}\n", "<module>"),
        ("def f():\n    return list(x / v for v in [y])\nf()\n", "f"),
    ],
)
def test_the_function_is_named_as_it_is_read(text: str, function: str, run_file: Sites) -> None:
    assert [site.function for site in run_file(text)] == [function]


def test_a_file_outside_the_working_directory_is_absolute(
    run_file: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    assert run_file("x / y\n", "package/inside.py")[0].file == "package/inside.py"
    monkeypatch.chdir(tmp_path / "package")
    assert run_file("x / y\n", "outside.py")[0].file == str(tmp_path / "outside.py")


def test_a_removed_working_directory_leaves_the_name_as_it_is(
    run_file: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run_file("x / y\n")[0].file == str(tmp_path / "program.py")


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Hand a text to linecache under a name, as notebooks do."""
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))

    def remember(text: str, filename: str) -> None:
        linecache.cache[filename] = (len(text), None, [line + "\n" for line in text.splitlines()], filename)

    return remember


NOTEBOOKS = ["<ipython-input-3-abc>", "/tmp/ipykernel_123/456.py"]


@pytest.mark.parametrize("filename", NOTEBOOKS)
def test_a_notebook_cell_has_its_expression(filename: str, probed: Run, register: Callable[[str, str], None]) -> None:
    text = "import math\na = x / y"
    register(text, filename)
    (site,) = probed(text, filename).sites
    assert (site.file, site.line, site.column, site.end_column, site.code) == (filename, 2, 5, 10, "x / y")


def test_equal_cells_have_sites_of_their_own(probed: Run, register: Callable[[str, str], None]) -> None:
    for filename in NOTEBOOKS:
        register("x / y", filename)
    assert [probed("x / y", filename).sites[0].file for filename in NOTEBOOKS] == NOTEBOOKS


@pytest.mark.parametrize("filename", ["<string>", "<stdin>", *NOTEBOOKS])
def test_code_without_source_has_its_line(filename: str, probed: Run) -> None:
    (site,) = probed("\na = x / y\n", filename).sites
    assert site == Site(file=filename, line=2, function="<module>")


def test_cells_that_are_no_python_keep_their_columns(probed: Run, register: Callable[[str, str], None]) -> None:
    register("%matplotlib inline\na = x / y", "<ipython-input-4-abc>")
    (site,) = probed("None # magic\na = x / y", "<ipython-input-4-abc>").sites
    assert (site.line, site.code) == (2, "x / y")


def test_a_cell_that_is_no_python_may_break_off(probed: Run, register: Callable[[str, str], None]) -> None:
    register("%magic\na = x(\n[1)", "<ipython-input-5-abc>")
    (site,) = probed("None\na = x(\n11)", "<ipython-input-5-abc>").sites
    assert (site.line, site.end_line, site.code) == (2, 3, "x( [1)")


def test_a_file_written_anew_is_read_anew(run_file: Sites) -> None:
    assert run_file("a = x / y\n")[0].code == "x / y"
    assert run_file("\n\nabc = x.log()\n")[0].code == "x.log()"


@pytest.mark.parametrize("edited", ["a = 2\nb = xy.log() / 3\n", "\n", "a = 1\nb", "é = 'ñ🎉🎉'; zz = 5"])
def test_source_that_was_edited_since_gives_no_expression(
    edited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probed: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    code, lasti = probed("a = 1\nlonger = x / y\n", str(program)).instructions[0]
    program.write_text(edited)
    assert resolve(code, lasti) == Site(file="program.py", line=2, function="<module>")


def test_a_rewritten_assertion_has_its_expression(probe_of: Callable[[str], Probe]) -> None:
    x = y = probe_of(__file__)
    assert x.sqrt() is not None
    assert (x / y).log() is not None
    assert [site.code for site in x.recorder.sites] == ["x.sqrt()", "x / y", "(x / y).log()"]


@pytest.mark.process
def test_without_column_ranges_there_is_the_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from whynan.source import operand_expressions, resolve\n"
        "class T:\n"
        "    def __truediv__(self, other):\n"
        "        frame = sys._getframe(1)\n"
        "        print(resolve(frame.f_code, frame.f_lasti).model_dump_json())\n"
        "        print(operand_expressions(frame.f_code, frame.f_lasti, 'div', ['self', 'other']))\n"
        "def f(x, y):\n"
        "    z = x / y\n"
        "f(T(), T())\n"
    )

    def run(*options: str) -> list[str]:
        command = [sys.executable, *options, "program.py"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return result.stdout.splitlines()

    site, operands = run("-X", "no_debug_ranges")
    assert Site.model_validate_json(site) == Site(file="program.py", line=9, code="z = x / y", function="f")
    assert operands == "{}"
    site, operands = run()
    assert Site.model_validate_json(site).column == 9
    assert operands == "{'self': 'x', 'other': 'y'}"


def test_code_that_was_stripped_of_its_columns_has_the_line(run_file: Sites, probed: Run, tmp_path: Path) -> None:
    run_file("a = x / y  # quotient\n")
    code, lasti = probed("a = x / y  # quotient\n", str(tmp_path / "program.py")).instructions[0]
    # of eight instructions at a time: on the line of the one before, columns unknown (Objects/locations.md)
    stripped = code.replace(co_linetable=b"\xef\x00" * (len(code.co_code) // 16 + 1))
    expected = Site(file="program.py", line=1, code="a = x / y  # quotient", function="<module>")
    assert resolve(stripped, lasti) == expected
    assert operand_expressions(stripped, lasti, "aten.div.Tensor", ["self", "other"]) == {}


def test_an_instruction_without_a_line_has_the_one_before_or_the_one_given() -> None:
    def f() -> int:
        return 1

    code = f.__code__.replace(co_linetable=b"", co_firstlineno=7, co_filename="<string>")
    assert resolve(code, 2).line == 7
    assert resolve(code, 2, line=9).line == 9
    assert resolve(f.__code__, -1).line == f.__code__.co_firstlineno
    assert resolve(f.__code__, 10_000).line == f.__code__.co_firstlineno + 1


def test_a_site_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    code = functools.partial(compile, "a = 1\n", "<string>", "exec")()
    first = resolve(code, 2)
    assert resolve(code, 2) is first
    monkeypatch.setattr("whynan.source.positions._MOST_SITES", 1)
    assert resolve(code, 4).file == "<string>"
    assert resolve(code, 2) is not first
    assert resolve(code, 2) == first


def test_few_files_are_kept_parsed(run_file: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whynan.source.syntax._MOST_FILES", 1)
    for name in ("a.py", "b.py", "a.py"):
        assert run_file("x / y\n", name)[0].code == "x / y"
