"""Numbers as text: short, and true."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from whynan.floats import describe_limit, format_value

SHOWN = [
    (1e-20, "1e-20"),
    (0.7853981633974483, "0.785"),
    (math.inf, "Inf"),
    (-math.inf, "-Inf"),
    (math.nan, "NaN"),
    (0.0, "0"),
    (-0.0, "-0"),
    (2.0000000e-40, "2e-40"),
    (9.99999968e-21, "1e-20"),
    (88.7228, "88.7"),
    (0.5, "0.5"),
    (65504.0, "65504"),
    (-3.4028234663852886e38, "-3.4e38"),
    (1e6, "1e6"),
    (0.00012, "0.00012"),
    (0.000012, "1.2e-5"),
    (1234.5, "1234.5"),
    (7, "7"),
    (True, "True"),
    (None, "?"),
    ("mean", "mean"),
    (complex(1, -2.5), "1-2.5j"),
    (complex(math.nan, math.inf), "NaN+Infj"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_a_value_is_shown_as(value: object, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.99999994, "0.9999999"), (1.0000001192, "1.0000001"), (999.9999, "999.9999")]
)
def test_a_number_beside_a_whole_one_is_not_shown_as_it(value: float, text: str) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
@example(0.9999999999999999)
@example(1.7976931348623157e308)
def test_the_text_is_within_three_digits_of_the_value(value: float) -> None:
    text = format_value(value)
    # Half a unit of the third digit, exactly: as floats, 1.8e308 would be Inf.
    assert abs(Decimal(text) - Decimal(value)) <= Decimal("0.005") * abs(Decimal(value))
    assert math.copysign(1.0, float(text)) == math.copysign(1.0, value)


@given(st.floats(min_value=-1e5, max_value=1e5))
def test_only_a_whole_number_looks_whole(value: float) -> None:
    text = format_value(value)
    assert value.is_integer() or "." in text or "e-" in text


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("float16", "65504"),
        ("bfloat16", "3.4e38"),
        ("float32", "3.4e38"),
        ("float64", "1.8e308"),
        ("float8_e4m3fn", "448"),
        ("torch.float8_e5m2", "57344"),
        ("complex64", "3.4e38"),
    ],
)
def test_the_limit_of_a_dtype_is_described(dtype: str, text: str) -> None:
    assert describe_limit(dtype) == text
