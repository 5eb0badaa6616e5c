"""Counters of values, beside those that NumPy's slowest and plainest functions give."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whynan.capture.onnx.counts import Counts
from whynan.capture.onnx.execution import Counters
from whynan.capture.onnx.statistics import counters

FLOATS = [
    np.dtype(d)
    for d in (
        np.float16,
        np.float32,
        np.float64,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float4_e2m1fn,
    )
]
WHOLE = [np.dtype(d) for d in (np.int8, np.uint16, np.int64, np.bool_, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2)]


def plainly(array: Any) -> Counters:
    """The same by other means: element by element in float64."""
    numbers = array.astype(np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    tiny = float(ml_dtypes.finfo(array.dtype).smallest_normal) if array.dtype in FLOATS else 0.0
    return Counters(
        array.dtype.name,
        array.shape,
        n=numbers.size,
        n_nan=sum(1 for x in numbers if x != x),
        n_posinf=sum(1 for x in numbers if x == np.inf),
        n_neginf=sum(1 for x in numbers if x == -np.inf),
        n_zero=sum(1 for x in numbers if x == 0),
        n_subnormal=sum(1 for x in numbers if 0 < abs(x) < tiny),
        finite_min=finite.min() if finite.size else None,
        finite_max=finite.max() if finite.size else None,
    )


def cast(array: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(array).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_code_of_a_format_is_counted(dtype: Any) -> None:
    codes = np.arange(256, dtype=np.uint8)
    if dtype.itemsize == 2:
        codes = np.arange(1 << 16, dtype=np.uint16)
    elif dtype.itemsize > 2:
        random = np.random.default_rng(0).integers(0, 256, 4096 * dtype.itemsize, np.uint8)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, 1e-40, 1.0]).astype(dtype).view(np.uint8)
        codes = np.concatenate([random, special])
    if dtype.name == "float4_e2m1fn":
        codes = codes[:16]
    array = codes.view(dtype)
    assert counters(array) == plainly(array)


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_whole_numbers_are_never_bad(dtype: Any) -> None:
    array = cast([[0, 1, 0], [1, -2, 1]], dtype)
    found = counters(array)
    assert found == plainly(array)
    assert found.bad == 0
    assert isinstance(found.finite_min, int)


@given(
    st.lists(st.floats(width=32), max_size=40),
    st.sampled_from([d for d in FLOATS if d.itemsize < 8]),
    st.integers(0, 3),
)
def test_counters_are_those_of_the_elements(numbers: list[float], dtype: Any, repeated: int) -> None:
    array = cast(np.array(numbers * (repeated + 1)), dtype)
    assert counters(array) == plainly(array)


@pytest.mark.parametrize("at", [0, 100_000, 131_071, 131_072, 299_999])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e-41, 0.0, -0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_special_element_among_many_is_found(at: int, bad: float, dtype: Any) -> None:
    array = np.random.default_rng(0).uniform(1, 2, 300_000).astype(dtype)
    array *= np.random.default_rng(1).choice([-1, 1], array.size).astype(dtype)
    array[at] = bad
    assert counters(array) == plainly(array)


def test_the_range_has_numpys_bits() -> None:
    array = np.random.default_rng(0).standard_normal((3, 70_000)).astype(np.float32)
    found = counters(array)
    assert np.float32(found.finite_min).tobytes() == array.min().tobytes()
    assert np.float32(found.finite_max).tobytes() == array.max().tobytes()


def test_a_view_is_counted_as_it_is_seen() -> None:
    array = np.arange(24, dtype=np.float16).reshape(4, 6)[::2, 1::3]
    assert counters(array) == plainly(array)


def test_a_complex_element_counts_as_its_two_parts() -> None:
    found = counters(np.array([1 + 2j, complex(0, np.inf), complex(np.nan, -1)], np.complex64))
    assert (found.n, found.n_nan, found.n_posinf, found.n_zero) == (6, 1, 1, 1)
    assert found.finite_min is found.finite_max is None


def test_what_is_no_tensor_of_numbers_has_no_counts() -> None:
    assert counters(np.array(["nan", "b"], object)) == Counters("string", (2,), 0)
    assert counters([np.zeros(3)]) == Counters("sequence", (1,), 0)
    assert counters(None) == Counters("none", (), 0)
    assert counters(np.zeros((0, 3), np.float32)) == Counters("float32", (0, 3), 0)


def test_a_single_number_is_a_tensor() -> None:
    assert counters(np.array(np.nan, np.float32)) == Counters("float32", (), 1, n_nan=1)


def test_an_array_under_several_names_is_counted_once() -> None:
    counts, array = Counts(), np.zeros(10_000, np.float32)
    assert counts(array) is counts(array)
    assert counts(array.copy()) == counts(array)


def test_an_array_in_the_place_of_one_that_is_gone_is_counted() -> None:
    counts = Counts()
    # that the next array takes the same place is likely, not certain
    for i in range(100):
        assert counts(np.full(10_000, i, np.float32)).finite_max == i


def test_small_arrays_are_counted_each_time() -> None:
    counts, array = Counts(), np.zeros(10, np.float32)
    counts(array)
    array[:] = np.nan
    assert counts(array).n_nan == 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signs_and_limits_by_their_bits(dtype: type[np.floating[Any]]) -> None:
    info = np.finfo(dtype)
    ends = [
        0.0,
        -0.0,
        info.max,
        info.min,
        info.tiny,
        -info.tiny,
        info.smallest_subnormal,
        -info.smallest_subnormal,
        1,
        -1,
    ]
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 1000):
        for few in (ends, ends[:2], ends[2:4], ends[4:8], ends[1::2], ends[::2]):
            array = rng.choice(np.array(few, dtype), size)
            found = counters(array)
            assert found.n_zero == int((array == 0).sum())
            assert found.n_subnormal == int(((np.abs(array) < info.tiny) & (array != 0)).sum())
            assert (found.finite_min, found.finite_max) == (float(array.min()), float(array.max()))
