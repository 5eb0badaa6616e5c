"""What the program's own source says is meant: where a comment holds, what it names, and which of them can go."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.analysis.facts import birth, sink, trace
from tests.unit.report.programs import finding
from whynan.records import Finding, Report, Site
from whynan.run.pipeline import report_of
from whynan.run.suppressions import Comment, all_comments, comment_at, comments_of


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Comments are read from the files of the working directory."""
    monkeypatch.chdir(tmp_path)
    comments_of.cache_clear()
    linecache.clearcache()
    return tmp_path


def comments(text: str) -> list[tuple[int, int, tuple[str, ...], str]]:
    """The comments of a file with this text."""
    name = f"file{len(list(Path().iterdir()))}.py"
    Path(name).write_text(text, encoding="utf-8")
    return [(c.line, c.last, c.patterns, c.reason) for c in comments_of(name)]


READ: dict[str, list[tuple[int, int, tuple[str, ...], str]]] = {
    "x = 1  # whynan: allow WN213 - a mask\n": [(1, 1, ("WN213",), "a mask")],
    "# whynan: allow WN213: a mask\nx = 1\n": [(1, 2, ("WN213",), "a mask")],
    "    # whynan: allow WN5 (a mask)\n": [(1, 2, ("WN5",), "a mask")],
    "x = 1  #whynan:allow WN501,WN502 , log-of-zero\n": [
        (1, 1, ("WN501", "WN502", "log-of-zero"), "by the comment at line 1")
    ],
    "x = 1  # noqa  # whynan: allow WN213\n": [(1, 1, ("WN213",), "by the comment at line 1")],
    "x = 1  # write '# whynan: allow WN213' here\n": [],
    "x = '# whynan: allow WN213'\n": [],
    '"""\n# whynan: allow WN213\n"""\n': [],
    "x = 1  # whynan: allow\n": [(1, 1, (), "by the comment at line 1")],
    "x = 1  # whynan: allowed WN213\n": [],
    "x = (  # whynan: allow WN213 — ünïcode\n    1)\n": [(1, 1, ("WN213",), "ünïcode")],
    # as far as it can be read
    "x = 1  # whynan: allow WN213\n'''\n": [(1, 1, ("WN213",), "by the comment at line 1")],
    "x = 1  # whynan: allow WN213\n  bad indentation\n": [(1, 1, ("WN213",), "by the comment at line 1")],
}


@pytest.mark.parametrize("text", READ)
def test_comments_are_read(text: str) -> None:
    assert comments(text) == READ[text]


def test_of_a_file_that_is_not_there_nothing_is_known() -> None:
    assert comments_of("nothing.py") == ()
    assert comments_of("\0") == ()


def at(line: int, end_line: int | None = None, **more: object) -> Finding:
    site = Site(file=str(more.pop("file", "net.py")), line=line, end_line=end_line, function="f")
    return finding(site=site, rule="WN501", name="softmax-all-masked", **more)


HOLDS = [
    ((1, 1), ("WN501",), at(1), True),
    ((1, 1), ("WN501",), at(2), False),
    ((3, 4), ("WN501",), at(4), True),
    ((3, 4), ("WN501",), at(5), False),
    # anywhere in an expression of several lines
    ((3, 3), ("WN501",), at(2, 5), True),
    ((5, 5), ("WN501",), at(2, 5), True),
    ((1, 1), ("WN501",), at(2, 5), False),
    ((1, 2), ("WN501",), at(2, 5), True),
    ((1, 1), ("WN5",), at(1), True),
    ((1, 1), ("softmax-all-masked",), at(1), True),
    ((1, 1), ("WN213", "WN5"), at(1), True),
    ((1, 1), ("softmax",), at(1), False),
    ((1, 1), ("W",), at(1), False),
    ((1, 1), (), at(1), False),
    ((1, 1), ("WN501",), finding(site=None, rule="WN501"), False),
]


@pytest.mark.parametrize(("lines", "patterns", "found", "holds"), HOLDS)
def test_where_a_comment_holds(
    lines: tuple[int, int], patterns: tuple[str, ...], found: Finding, *, holds: bool
) -> None:
    comment = Comment("net.py", *lines, patterns, "meant")
    assert comment.fits(found) is holds
    assert (comment_at(found, [comment]) is comment) is holds


def test_a_comment_of_another_file_does_not_hold() -> None:
    assert comment_at(at(1), [Comment("other.py", 1, 1, ("WN501",), "meant")]) is None
    assert comment_at(at(1, file="<string>"), [Comment("<string>", 1, 1, ("WN501",), "meant")]) is None


def test_a_comment_names_itself() -> None:
    assert str(Comment("net.py", 3, 4, ("WN501", "WN5"), "")) == "# whynan: allow WN501, WN5 at net.py:3"
    assert str(Comment("net.py", 3, 4, (), "")) == "# whynan: allow at net.py:3"


# -- in a report -----------------------------------------------------------------------------------------------------


def report(line: int, *, whole_program: bool = True, main: str | None = "net.py") -> Report:
    """The report of a program with a birth in a line of net.py."""
    found = trace([birth(1, line=line)], [sink(1)])
    return report_of(
        found,
        command="net.py",
        flags={},
        device="cpu",
        allowances=[],
        exception=None,
        whole_program=whole_program,
        main=main,
    )


def test_what_a_comment_excuses_is_said_with_its_reason(here: Path) -> None:
    (here / "net.py").write_text("x = 1  # whynan: allow WN0 - known\n")
    made = report(1)
    assert (made.verdict, made.findings, made.unused_allows) == ("clean", (), ())
    assert made.coverage.notes == ("WN000 unexplained at net.py:1 is allowed: known",)


def test_a_comment_that_excused_nothing_is_named(here: Path) -> None:
    (here / "net.py").write_text("x = 1  # whynan: allow WN0\ny = 2  # whynan: allow WN0\nz = 3  # whynan: allow\n")
    assert report(1).unused_allows == ("# whynan: allow WN0 at net.py:2", "# whynan: allow at net.py:3")


def test_a_part_of_a_program_says_nothing_of_what_it_did_not_see(here: Path) -> None:
    (here / "net.py").write_text("x = 1\ny = 2  # whynan: allow WN0\n")
    assert report(1, whole_program=False).unused_allows == ()


def test_a_script_is_known_by_the_name_that_python_has_forgotten(here: Path) -> None:
    # at exit __main__ has no __file__ any more
    (here / "net.py").write_text("x = 1\ny = 2  # whynan: allow WN0\n")
    assert report(1, main=None).unused_allows == ()
    assert report(1, main=str(here / "net.py")).unused_allows == ("# whynan: allow WN0 at net.py:2",)


def test_modules_of_the_users_are_looked_at_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "net.py").write_text("y = 2  # whynan: allow WN0\n")
    for name in ("net", "net_again"):
        module = ModuleType(name)
        module.__file__ = str(here / "net.py")
        monkeypatch.setitem(sys.modules, name, module)
    odd = ModuleType("odd")
    odd.__file__ = 3  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "odd", odd)
    monkeypatch.setitem(sys.modules, "none", None)  # type: ignore[arg-type]
    assert [str(c) for c in all_comments("net.py")] == ["# whynan: allow WN0 at net.py:1"]
