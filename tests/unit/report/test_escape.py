"""Text from strangers made harmless, and fit for an output's encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whynan.report.escape import encodable, plain, shortened

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss = a * b", "loss = a * b"),
        ("損失 → ∂", "損失 → ∂"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\r\n\tb", "a\\r\\n\\tb"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2028b\u00a0c", "a\\u2028b\\xa0c"),
        ("file\udc80", "file\\udc80"),
        ("\u2764\ufe0f", "\u2764\\ufe0f"),
        ("\U000e0100", "\\U000e0100"),
        ("e\u0301", "e\u0301"),
        ("a\u3164\u034f\u2800b", "a\\u3164\\u034f\\u2800b"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("a · b² → c", "utf-8", "a · b² → c"),
        ("a · b² → c…", "ascii", "a - b^2 -> c..."),
        ("a · b² → c", "latin-1", "a · b² -> c"),
        ("Größe 損", "ascii", "Gr\\xf6\\xdfe \\u640d"),
        ("Größe 損", "latin-1", "Größe \\u640d"),
        ("Größe · 損", "shift_jis", "Gr\\xf6\\xdfe - 損"),
        ("2 · 3", "no-such-encoding", "2 - 3"),
        ("\U0001f642", "cp1252", "\\U0001f642"),
    ],
)
def test_signs_degrade_one_by_one(text: str, encoding: str, shown: str) -> None:
    assert encodable(text, encoding) == shown


@given(ANY_TEXT, st.sampled_from(["ascii", "latin-1", "utf-8", "utf-16", "shift_jis", "koi8-r"]))
def test_any_text_becomes_printable_and_encodable(text: str, encoding: str) -> None:
    shown = encodable(plain(text), encoding)
    assert shown.isprintable()
    shown.encode(encoding)


@given(ANY_TEXT)
def test_what_is_plain_stays(text: str) -> None:
    assert plain(plain(text)) == plain(text)


@given(st.text(max_size=40), st.text(min_size=1, max_size=40), st.integers(0, 400), st.text(max_size=40))
def test_long_text_is_told_by_its_ends(start: str, again: str, times: int, end: str) -> None:
    text = start + again * times + end
    shown = shortened(text)
    assert len(shown) <= 1200
    assert shown == text or (shown.startswith(text[:800]) and shown.endswith(text[-200:]) and len(shown) < len(text))


def test_how_much_is_left_out_is_said() -> None:
    assert shortened("a" * 3000 + "z") == "a" * 800 + "... (2,001 more characters) ..." + "a" * 199 + "z"
