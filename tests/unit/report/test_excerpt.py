"""The source of a site: shown where it still is what ran, and marked to the character."""

from __future__ import annotations

import hashlib
import linecache
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from whynan.records import Site, Source
from whynan.report.excerpt import Excerpt, Sources, excerpt
from whynan.report.page import Page

TEXT = "import torch\n\ndef loss(x):\n    return torch.log(x)\n"
SITE = Site(file="", line=4, column=12, end_line=4, end_column=24, code="torch.log(x)")


def written(path: Path, content: str | bytes = TEXT) -> tuple[Site, Source]:
    """A file, a site in it, and its hash."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return SITE.model_copy(update={"file": str(path)}), Source(file=str(path), sha256=digest)


def test_the_line_of_the_run_is_marked(tmp_path: Path) -> None:
    site, source = written(tmp_path / "net.py")
    assert excerpt(site, Sources([source]).line) == (Excerpt("return torch.log(x)", (7, 19)),)


def test_of_a_changed_file_only_the_expression_is_shown(tmp_path: Path) -> None:
    site, source = written(tmp_path / "net.py")
    written(tmp_path / "net.py", TEXT + "# one line more\n")
    assert excerpt(site, Sources([source]).line) == (Excerpt("torch.log(x)", None),)


def test_a_file_that_is_gone_shows_the_expression(tmp_path: Path) -> None:
    site, source = written(tmp_path / "net.py")
    (tmp_path / "net.py").unlink()
    assert excerpt(site, Sources([source]).line) == (Excerpt("torch.log(x)", None),)


def test_a_hash_in_capitals_is_the_same_hash(tmp_path: Path) -> None:
    site, source = written(tmp_path / "net.py")
    shouted = Source(file=source.file, sha256=source.sha256.upper())
    assert excerpt(site, Sources([shouted]).line)[0].marked == (7, 19)


def test_a_file_in_another_encoding_is_read_in_it(tmp_path: Path) -> None:
    content = "# coding: latin-1\n\ndef größe(x):\n    return größe_von(x)\n".encode("latin-1")
    site, source = written(tmp_path / "net.py", content)
    site = site.model_copy(update={"code": "größe_von(x)"})
    assert excerpt(site, Sources([source]).line) == (Excerpt("return größe_von(x)", (7, 19)),)


@pytest.mark.parametrize("content", [b"# coding: nonsense\n\n\n    return torch.log(x)\n", b"\xff\xfe\x00\n\n\n\n"])
def test_a_file_that_cannot_be_read_as_source_shows_the_expression(tmp_path: Path, content: bytes) -> None:
    site, source = written(tmp_path / "net.py", content)
    assert excerpt(site, Sources([source]).line) == (Excerpt("torch.log(x)", None),)


def test_a_file_of_no_known_hash_is_not_read(tmp_path: Path) -> None:
    site, _ = written(tmp_path / "net.py")
    assert excerpt(site, Sources([]).line) == (Excerpt("torch.log(x)", None),)
    assert Sources([]).line(site.file, 4) is None


def test_a_file_that_this_process_has_read_is_believed_where_it_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _ = written(tmp_path / "net.py")
    linecache.getlines(site.file)
    assert excerpt(site, Sources([]).line) == (Excerpt("return torch.log(x)", (7, 19)),)
    monkeypatch.chdir(tmp_path)
    relative = site.model_copy(update={"file": "net.py"})
    assert excerpt(relative, Sources([]).line) == (Excerpt("return torch.log(x)", (7, 19)),)
    written(tmp_path / "net.py", TEXT.replace("log(x)", "exp(x)"))
    assert excerpt(site, Sources([]).line) == (Excerpt("torch.log(x)", None),)


def test_a_cell_of_a_notebook_is_read_from_where_it_registered_itself() -> None:
    name = "<ipython-input-7-0123>"
    linecache.cache[name] = (len(TEXT), None, TEXT.splitlines(keepends=True), name)
    try:
        site = SITE.model_copy(update={"file": name})
        assert excerpt(site, Sources([]).line) == (Excerpt("return torch.log(x)", (7, 19)),)
    finally:
        del linecache.cache[name]


@pytest.mark.parametrize("known", [True, False])
def test_a_pipe_is_not_waited_for(tmp_path: Path, known: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sources = Sources([Source(file=str(pipe), sha256="0" * 64)] if known else [])
    assert sources.line(str(pipe), 1) is None


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "", "no/such/file.py"])
@pytest.mark.parametrize("known", [True, False])
def test_a_name_that_is_no_file_has_no_lines(name: str, known: bool) -> None:
    sources = Sources([Source(file=name, sha256="0" * 64)] if known else [])
    assert sources.line(name, 1) is None


def test_a_file_is_read_once(tmp_path: Path) -> None:
    _, source = written(tmp_path / "net.py")
    sources = Sources([source])
    assert sources.line(source.file, 1) == "import torch"
    (tmp_path / "net.py").unlink()
    assert [sources.line(source.file, number) for number in (0, 4, 5)] == [None, "    return torch.log(x)", None]


LINES = {
    1: "    y = torch.where(",
    2: "        x > 0,",
    3: "",
    4: "\tz,  # 説明",
    5: "        w,",
    6: "        v,",
    7: "    ) + 1",
}


def of(line: int, number: str = "") -> str | None:
    return LINES.get(line)


def at(line: int, column: int | None, end_line: int | None, end_column: int | None, code: str | None) -> Site:
    return Site(file="f", line=line, column=column, end_line=end_line, end_column=end_column, code=code)


def test_an_expression_over_several_lines_is_marked_on_each() -> None:
    site = at(4, 2, 6, 10, "z, w, v")
    shown = excerpt(site, lambda _, line: of(line))
    assert shown == (Excerpt("z,  # 説明", (0, 8)), Excerpt("       w,", (7, 9)), Excerpt("       v,", (7, 8)))


def test_a_long_expression_is_shown_by_its_beginning_and_its_end() -> None:
    code = "torch.where( x > 0, z, w, v, )"
    shown = excerpt(at(1, 9, 7, 6, code), lambda _, line: of(line))
    assert [line.text for line in shown] == [
        "   y = torch.where(",
        "       x > 0,",
        "... 3 more lines",
        "       v,",
        "   ) + 1",
    ]
    assert [line.marked for line in shown] == [(7, 19), (7, 13), None, (7, 9), (3, 4)]


@pytest.mark.parametrize(
    "site",
    [
        at(5, 1, 5, 4, "w"),
        at(5, 90, 5, 99, "w"),
        at(4, 1, 4000, 3, "w"),
        at(9, 1, 9, 2, "w"),
        at(5, 9, 3, 2, "w"),
        at(5, None, None, None, "w"),
        at(5, 9, None, None, "w"),
    ],
)
def test_lines_that_do_not_hold_the_expression_are_not_shown(site: Site) -> None:
    assert excerpt(site, lambda _, line: of(line)) == (Excerpt("w", None),)


def test_without_columns_the_line_is_shown_without_a_mark() -> None:
    assert excerpt(at(5, None, None, None, "w,"), lambda _, line: of(line)) == (Excerpt("w,", None),)
    assert excerpt(at(2, None, None, None, None), lambda _, line: of(line)) == (Excerpt("x > 0,", None),)


@pytest.mark.parametrize("line", [3, 90])
def test_nothing_is_shown_where_nothing_is_known(line: int) -> None:
    assert excerpt(at(line, None, None, None, None), lambda _, number: of(number)) == ()


WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n\r\u2028"), max_size=30)


def lines_of(line: Excerpt, width: int = 4000) -> list[str]:
    page = Page(width)
    page.code(line)
    return page.finish(color=False).split("\n")


def cells_of(text: str) -> int:
    """How wide a text is as source; the bars keep spaces at its ends."""
    (line,) = lines_of(Excerpt(f"|{text}|", None))
    return cell_len(line.strip()) - 2


# what takes no room, as a modifier of an emoji by itself, has nothing under it
@given(WORDS, WORDS.filter(lambda text: text.strip() and cell_len(text) > 0), WORDS)
def test_carets_stand_under_what_is_marked_and_nothing_else(before: str, marked: str, after: str) -> None:
    text = f"{before}{marked}{after}|"
    line, carets = lines_of(Excerpt(text, (len(before), len(before) + len(marked))))
    indent = cell_len(line) - cells_of(text)
    assert carets == " " * (indent + cells_of(before)) + "^" * cells_of(marked)


@given(WORDS, st.integers(32, 120))
def test_a_line_too_long_for_the_terminal_goes_on_below(text: str, width: int) -> None:
    lines = lines_of(Excerpt(text * 9, None), width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join("".join(lines_of(Excerpt(text * 9, None))).split())


@given(st.integers(0, 5000), st.integers(1, 3000))
def test_of_a_very_long_line_what_stands_around_the_mark_is_shown(start: int, length: int) -> None:
    text = "a" * start + "b" * length + "c" * 3000
    line, carets, *more = lines_of(Excerpt(text, (start, start + length)))
    assert not more
    assert len(line) < 1300
    assert carets.count("^") == line.count("b") == min(length, 1200 - min(start, 200))
    assert line[carets.index("^") : carets.rindex("^") + 1].strip("b") == ""
