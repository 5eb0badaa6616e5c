"""Unified diffs: read as diff, git and format-patch write them, and applied exactly or not at all."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whynan.fixes.diffs import DiffError, apply_diff, merge, read_diff

BEFORE = "import torch\n\n\ndef f(x):\n    p = x.softmax(-1)\n    return p.log()\n\n\nprint(f)\n"
AFTER = "import torch\n\n\ndef f(x):\n    return x.log_softmax(-1)\n\n\nprint(f)\n"


def git_diff(folder: Path, before: bytes, after: bytes, name: str = "net.py") -> str:
    """What git itself says of the change of a file."""
    for version, content in (("old", before), ("new", after)):
        (folder / version).mkdir()
        (folder / version / name).write_bytes(content)
    command = ["git", "diff", "--no-index", "--no-prefix", f"old/{name}", f"new/{name}"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout.decode()


def plain(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/net.py", "b/net.py", n=1)
    return "".join(lines)


def test_a_change_is_applied_where_it_says() -> None:
    assert apply_diff(read_diff(plain(BEFORE, AFTER)), BEFORE) == AFTER


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\nb\nc\n", b"a\nc\n"),
        (b"a\nb", b"a\nb\n"),
        (b"a\nb\n", b"a\nb"),
        (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc", b"a\r\nb\r\nC"),
        (b"a\x0cb\xe2\x80\xa8c\nd\n", b"a\x0cb\xe2\x80\xa8C\nd\n"),
        (b"\n\n\n", b"\n--- x\n\n"),
        (b"-- x\n++ y\n", b"-- x\n++ z\n"),
        (b"x\n" * 30, b"y\n" + b"x\n" * 28 + b"z\n"),
    ],
)
def test_what_git_writes_is_applied_and_taken_back(before: bytes, after: bytes, tmp_path: Path) -> None:
    diff = read_diff(git_diff(tmp_path, before, after))
    assert apply_diff(diff, before.decode()) == after.decode()
    assert apply_diff(diff.reversed(), after.decode()) == before.decode()


LINES = st.lists(st.sampled_from(["a\n", "b\n", "\n", " c\n", "-d\n", "+e\n"]), max_size=12)


@given(LINES, LINES)
def test_any_change_is_applied_and_taken_back(before: list[str], after: list[str]) -> None:
    told = "".join(difflib.unified_diff(before, after, "a/x", "b/x", n=1))
    if not told:
        return
    diff = read_diff(told)
    assert apply_diff(diff, "".join(before)) == "".join(after)
    assert apply_diff(diff.reversed(), "".join(after)) == "".join(before)


def test_a_name_is_read_as_git_writes_it(tmp_path: Path) -> None:
    diff = read_diff(git_diff(tmp_path, b"a\n", b"b\n", name='naïve "net".py'))
    assert diff.names == ('old/naïve "net".py', 'new/naïve "net".py')


def test_the_prefixes_of_git_and_the_time_are_no_part_of_a_name() -> None:
    told = "--- a/src/net.py\t2026-01-01\n+++ b/src/net.py\t2026-01-02\n@@ -1 +1 @@\n-a\n+b\n"
    assert read_diff(told).names == ("src/net.py", "src/net.py")


def test_a_mail_of_format_patch_is_read() -> None:
    mail = f"From 0123 Mon Sep 17\nSubject: [PATCH] x\n\n--- \n net.py | 2 +-\n\n{plain(BEFORE, AFTER)}-- \n2.43.0\n"
    assert apply_diff(read_diff(mail), BEFORE) == AFTER


def test_an_empty_line_without_its_blank_is_an_empty_line() -> None:
    told = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n"
    assert apply_diff(read_diff(told), "a\n\nb\n") == "a\n\nc\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_are_those_of_the_file(end: str) -> None:
    text = plain("a\nb\n", "a\nc\n").replace("\n", end)
    assert apply_diff(read_diff(text), "a\r\nb\r\n") == "a\r\nc\r\n"
    assert apply_diff(read_diff(text), "a\nb\n") == "a\nc\n"


@pytest.mark.parametrize(
    "before",
    [f"\n{BEFORE}", BEFORE.replace("p.log()", "p.log() "), "", BEFORE.replace("\n", "\r\n", 6)],
    ids=["moved by a line", "another blank", "empty", "other line ends"],
)
def test_a_change_that_does_not_fit_exactly_is_none(before: str) -> None:
    with pytest.raises(DiffError, match="does not fit"):
        apply_diff(read_diff(plain(BEFORE, AFTER)), before)


HEADER = "--- a/x\n+++ b/x\n"
REFUSED = {
    "": "is no unified diff",
    "hello\n": "is no unified diff",
    HEADER: "is no unified diff",
    f"{HEADER}@@ -1,2 +1,2 @@\n a\n": "ends in the middle",
    f"{HEADER}@@ -1,2 +1,2 @@\n a\n?b\n": "ends in the middle",
    f"{HEADER}@@ -1 +1,2 @@\n-a\n-b\n+c\n+d\n": "other lines than it says",
    f"{HEADER}@@ -x +1 @@\n-a\n+b\n": "cannot be read",
    "@@ -1 +1 @@\n-a\n+b\n": "cannot be read",
    f"{HEADER}@@ -1 +1 @@\n-a\n+b\n{HEADER}@@ -1 +1 @@\n-a\n+b\n": "more than one file",
    "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n": "makes or removes",
    "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n": "makes or removes",
    "rename from x\nrename to y\n": "renames",
    "Binary files a/x and b/x differ\n": "binary",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_change_of_one_file_is_refused(text: str) -> None:
    with pytest.raises(DiffError, match=REFUSED[text]):
        read_diff(text)


def test_a_change_of_the_same_lines_twice_is_refused() -> None:
    told = f"{HEADER}@@ -1 +1 @@\n-a\n+b\n@@ -1 +1 @@\n-a\n+c\n"
    with pytest.raises(DiffError, match="hunk 2"):
        apply_diff(read_diff(told), "a\n")


LINES = "a\nb\nc\nd\n"


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        pytest.param("a\nB\nc\nd\n", "a\nb\nc\nD\nd\n", "a\nB\nc\nD\nd\n", id="lines apart"),
        pytest.param("i\na\nB\nc\nd\n", "i\na\nb\nc\nD\n", "i\na\nB\nc\nD\n", id="what both add"),
        pytest.param("a\nB\nc\nd\n", "a\nX\nc\nd\n", None, id="one line"),
        pytest.param("a\nB\nC\nd\n", "a\nb\nX\nY\n", None, id="a line of each"),
        pytest.param("a\nx\nb\nc\nd\n", "a\ny\nb\nc\nd\n", None, id="one place"),
        pytest.param("a\nB\nc\nd\n", LINES, "a\nB\nc\nd\n", id="nothing"),
    ],
)
def test_two_changes_of_a_text_are_merged_where_they_are_apart(one: str, other: str, merged: str | None) -> None:
    assert merge(LINES, one, other) == merged
    assert merge(LINES, other, one) == merged
