"""JSON that may be looked at says the same as before."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whynan.traces.json import visible


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", '"plain"'),
        ("größer 入力 \U0001f642", '"größer 入力 \U0001f642"'),
        ("a\x1b\x00b", '"a\\u001b\\u0000b"'),
        ("a\x7f\x9b2Jb", '"a\\u007f\\u009b2Jb"'),
        ("a\u202e\u2028\u200bb", '"a\\u202e\\u2028\\u200bb"'),
        ("\U000e0041x", '"\\udb40\\udc41x"'),
    ],
)
def test_what_cannot_be_seen_is_an_escape(text: str, written: str) -> None:
    assert visible(json.dumps(text, ensure_ascii=False)) == written


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_it_says_the_same(text: str) -> None:
    made = visible(json.dumps({text: [text]}, ensure_ascii=False))
    assert made.isprintable()
    assert json.loads(made) == {text: [text]}
