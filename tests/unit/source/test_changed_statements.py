"""Of two texts of a file only the statements are compared that an edit may have changed."""

from __future__ import annotations

import ast

import pytest

from whynan.source.text import Place, changed_statements

FILE = """\
import math


@first
def ahead(x):
    return x + 1


@second
def edited(x):
    y = x + 1
    return y


@third
def behind(x):
    return x + 1
"""


def told(edited: str) -> tuple[list[str], list[str]]:
    """The statements that are compared, without those within others."""
    one, other = changed_statements(Place(FILE), edited)
    return [ast.unparse(s) for s in one], [ast.unparse(s) for s in other]


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("y = x + 1", "y = x + 2", {"edited"}),
        ("    y = x + 1\n", "    z = 1\n    y = x + 1\n", {"edited"}),
        # the last of those at the top is compared with what is behind it
        ("@third", "@fourth", {"behind"}),
        ("@second", "@fourth", {"edited"}),
        ("import math", "import os", {"math", "os"}),
    ],
)
def test_the_statement_at_the_top_that_an_edit_is_in_is_among_them(before: str, after: str, names: set[str]) -> None:
    one, other = told(FILE.replace(before, after, 1))
    assert one != other
    assert all(any(name in text for text in (*one, *other)) for name in names)
    assert not any("def ahead" in text for text in one) or "math" in names


def test_what_is_added_between_two_is_among_them() -> None:
    one, other = told(FILE.replace("@third", "new = 1\n\n\n@third"))
    assert "new = 1" in other
    assert "new = 1" not in one


def test_an_edit_that_takes_in_what_is_behind_it_is_seen() -> None:
    """The twin: the text behind is what it was, and stands in a string."""
    one, other = told(FILE.replace("return y\n", "return '''\n", 1) + "'''\n")
    assert len(one) > len(other)


def test_equal_texts_have_the_last_statement_alone() -> None:
    one, other = told(FILE)
    assert one == other
    assert not any("ahead" in text for text in one)
