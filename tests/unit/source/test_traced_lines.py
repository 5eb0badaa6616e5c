"""From the stack trace of an operation in a graph back to the code and the instruction of each of its frames."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

import pytest

from whynan.source.positions import resolve
from whynan.source.traced_lines import TracedOperation, traced_frames

PROGRAM = """\
def outer(x, y):
    é = x + inner(x)
    return é


def inner(x):
    a, b = x * 2, (
        x / 0)
    return a


def whole(x):
    x / 0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def stack_of(file: Path, function: str) -> str:
    """The stack trace of what a function of the file raises, without the frames of this one."""
    names: dict[str, object] = {}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    try:
        names[function](*[1] * (2 if function == "outer" else 1))  # pyright: ignore[reportCallIssue]
    except ZeroDivisionError as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        return "".join(traceback.format_list(frames))
    raise AssertionError


def told(stack: str, name: str = "", turn: int = 0) -> list[tuple[str | None, int, int | None]]:
    sites = [resolve(*frame) for frame in traced_frames(TracedOperation(stack, name, turn))]
    return [(site.code, site.line, site.column) for site in sites]


def test_each_frame_is_the_expression_that_is_marked(file: Path) -> None:
    assert told(stack_of(file, "outer")) == [("x / 0", 8, 9), ("inner(x)", 2, 13)]


def test_without_marks_it_is_all_of_the_line(file: Path) -> None:
    stack = stack_of(file, "whole").rpartition("    ~~^~~\n")[0]
    assert told(stack) == [("x / 0", 13, 5)]


@pytest.mark.parametrize(
    ("name", "turn", "expected"),
    [
        ("truediv", 0, "x / 2"),
        ("add", 0, "x / 2 + x"),
        ("iadd", 1, "x / 2 + x + 1"),
        ("linear", 0, "x / 2 + x + 1"),
    ],
)
def test_of_what_begins_at_one_place_it_is_what_asks_for_the_operation(
    name: str, turn: int, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "sums.py"
    path.write_text("def f(x):\n    return x / 2 + x + 1\n")
    marks = " " * 11 + "^" * 13
    stack = f'  File "{path}", line 2, in f\n    return x / 2 + x + 1\n    {marks[4:]}\n'
    assert told(stack, name, turn) == [(expected, 2, 12)]


@pytest.mark.parametrize(
    ("name", "expected"), [("truediv", "x / 2"), ("sum", "(x / 2 + 1).sum()"), ("linear", "(x / 2 + 1).sum()")]
)
def test_of_a_stack_that_marks_nothing_all_of_the_line_is_asked(name: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "exported.py"
    path.write_text("def f(x):\n    y = (x / 2 + 1).sum()  \n")
    stack = f'File "{path}", line 2, in f\n    y = (x / 2 + 1).sum()'
    assert [code for code, *_ in told(stack, name)] == [expected]


def test_blanks_at_the_end_of_a_line_move_the_marks(tmp_path: Path) -> None:
    path = tmp_path / "blanks.py"
    path.write_text("def f(x):\n    return 2 * (x / 0)  \n")
    assert told(stack_of(path, "f"), "truediv")[0] == ("x / 0", 2, 17)


@pytest.mark.parametrize(("called", "expected"), [("second", "x.first().second()"), ("forward", "x.first()")])
def test_a_frame_that_calls_another_is_the_call_of_it(called: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "calls.py"
    path.write_text("def f(x):\n    y = x.first().second() * 2\n")
    marks = "        " + "^" * 22
    stack = (
        f'  File "{path}", line 2, in f\n    y = x.first().second() * 2\n{marks}\n  File "gone", line 1, in {called}\n'
    )
    assert [code for code, *_ in told(stack)] == [expected]


def test_a_file_that_was_changed_since_has_no_such_line(file: Path) -> None:
    stack = stack_of(file, "outer")
    file.write_text("\n" + PROGRAM, encoding="utf-8")
    linecache.checkcache()
    assert told(stack) == []


@pytest.mark.parametrize("stack", ["", "no stack", '  File "gone.py", line 3, in f\n    x / 0\n'])
def test_what_leads_to_no_line_is_left_out(stack: str) -> None:
    assert told(stack) == []


def test_a_file_that_is_no_python_any_more_is_left_out(file: Path) -> None:
    stack = stack_of(file, "whole")
    file.write_text(PROGRAM + "def (", encoding="utf-8")
    linecache.checkcache()
    assert told(stack) == []
