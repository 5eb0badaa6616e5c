"""Values, types, indices and counts as the report writes them."""

from __future__ import annotations

from typing import Any

import pytest

from whynan.report.wording import array_of, bad_word, count_text, share_text, value_text

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        ("float32", (8, 4, 340), "f32[8, 4, 340]"),
        ("torch.bfloat16", (2,), "bf16[2]"),
        ("complex128", (), "c128[]"),
        ("int64", (0,), "i64[0]"),
        ("uint8", (1,), "u8[1]"),
        ("float8_e4m3fn", (3,), "f8_e4m3fn[3]"),
        ("bool", (3,), "bool[3]"),
        ("torch.qint8", (3,), "qint8[3]"),
    ],
)
def test_arrays(dtype: str, shape: tuple[int, ...], text: str) -> None:
    assert array_of(dtype, shape) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-20, "1e-20"),
        (NAN, "NaN"),
        ("NaN", "NaN"),
        ("-Infinity", "-Inf"),
        ("Infinity", "Inf"),
        ("mean", "'mean'"),
        (True, "True"),
        (7, "7"),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_words_for_what_is_bad() -> None:
    assert [bad_word(v) for v in (NAN, INF, -INF, None)] == ["NaN", "Inf", "-Inf", "NaN"]


@pytest.mark.parametrize(("count", "text"), [(0, "0 steps"), (1, "1 step"), (10880, "10,880 steps")])
def test_counts(count: int, text: str) -> None:
    assert count_text(count, "step") == text


@pytest.mark.parametrize(
    ("bad", "total", "text"), [(1, 1, ""), (3, 12, "3 of 12 elements"), (1200, 1200, "all 1,200 elements")]
)
def test_shares(bad: int, total: int, text: str) -> None:
    assert share_text(bad, total) == text
