"""The facts about formats, against NumPy for IEEE ones and against every code for the 8-bit ones."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whynan.errors import UsageError
from whynan.floats import FORMATS, format_of, ulp

IEEE = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
EIGHT_BIT = sorted(name for name in FORMATS if name.startswith("float8"))


def codes_of(name: str) -> list[float]:
    """Every number of an 8-bit format, NaN left out, ascending."""
    numbers = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).to(torch.float64).tolist()
    return sorted(number for number in numbers if not math.isnan(number))


@pytest.mark.parametrize("name", sorted(IEEE))
def test_limits_are_those_of_numpy(name: str) -> None:
    facts, expected = FORMATS[name], np.finfo(IEEE[name])
    assert facts.max == float(expected.max)
    assert facts.tiny == float(expected.tiny)
    assert facts.smallest_subnormal == float(expected.smallest_subnormal)
    assert facts.eps == float(expected.eps)


def test_limits_of_bfloat16_are_those_of_torch() -> None:
    facts, expected = FORMATS["bfloat16"], torch.finfo(torch.bfloat16)
    assert (facts.max, facts.tiny, facts.eps) == (expected.max, expected.tiny, expected.eps)
    neighbour = torch.tensor(1, dtype=torch.int16).view(torch.bfloat16)
    assert facts.smallest_subnormal == neighbour.item()


@pytest.mark.parametrize("name", EIGHT_BIT)
def test_limits_of_an_8_bit_format_are_those_of_its_codes(name: str) -> None:
    facts = FORMATS[name]
    numbers = codes_of(name)
    finite = [number for number in numbers if math.isfinite(number)]
    assert facts.max == finite[-1]
    assert facts.has_inf == (math.inf in numbers)
    assert facts.smallest_subnormal == min(number for number in finite if number > 0)
    assert facts.eps == min(number for number in finite if number > 1) - 1


@pytest.mark.parametrize("name", EIGHT_BIT)
def test_ulp_is_the_gap_to_the_next_code(name: str) -> None:
    positive = [number for number in codes_of(name) if 0 <= number < math.inf]
    gaps = {lower: upper - lower for lower, upper in itertools.pairwise(positive)}
    assert {number: ulp(number, name) for number in gaps} == gaps


@given(st.floats(width=16, allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) < 65504))
def test_ulp_of_float16_is_numpys_spacing(value: float) -> None:
    # Of the magnitude: NumPy steps upwards from a negative number, which at a power of two is the smaller gap; and not
    # at the maximum, from which it steps to Inf.
    assert ulp(value, "float16") == float(np.spacing(np.float16(abs(value))))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) < 3.4e38))
def test_ulp_of_float32_is_numpys_spacing(value: float) -> None:
    assert ulp(value, "float32") == float(np.spacing(np.float32(abs(value))))


@given(st.floats(allow_infinity=False))
def test_ulp_of_float64_is_the_standard_librarys(value: float) -> None:
    assert ulp(value, "float64") == pytest.approx(math.ulp(value), rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_beyond_the_maximum_there_is_no_neighbour(name: str) -> None:
    beyond = math.nextafter(FORMATS[name].max, math.inf)
    assert ulp(beyond, name) == math.inf
    assert ulp(-math.inf, name) == math.inf
    assert math.isnan(ulp(math.nan, name))


def test_a_format_is_found_by_the_names_that_frameworks_use() -> None:
    assert format_of("torch.bfloat16") is FORMATS["bfloat16"]
    assert format_of("complex64") is FORMATS["float32"]


def test_what_is_no_format_is_refused_with_the_list_of_those_that_are() -> None:
    with pytest.raises(UsageError, match="'int64' is no floating-point format: give one of float64, float32, bfloat16"):
        format_of("int64")


def test_a_format_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(FORMATS["float16"])) == FORMATS["float16"]
