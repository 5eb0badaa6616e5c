"""Which elements changed, which of them are worse, which are made up: in arrays, with the truth and without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from whynan.floats import FORMATS, format_of
from whynan.verify.comparison import Truth, disputed, is_far, spacing, standing

INF, NAN = math.inf, math.nan


def array(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def truth(*values: float, noise: float = 0.0, undecided: bool = False) -> Truth:
    """The exact values: an infinity is infinite, NaN is undefined."""
    found = array(*values)
    told = np.isfinite(found)
    nothing = np.full(found.shape, undecided)
    return Truth(np.where(told, found, 0.0), np.isinf(found), np.isnan(found), nothing, np.full(found.shape, noise))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_the_spacing_is_that_of_the_format(dtype: str) -> None:
    known = FORMATS[dtype]
    values = [0.0, known.smallest_subnormal, known.tiny, -1.0, 0.75, 1.5, known.max]
    assert spacing(array(*values), dtype).tolist() == [known.ulp(v) for v in values]
    assert spacing(array(INF, NAN), dtype).tolist() == [known.ulp(known.max)] * 2


def test_two_units_in_the_last_place_are_no_change_and_three_are() -> None:
    eps = format_of("float32").eps
    old = array(1.0, 1.0, 0.0, INF, NAN)
    new = array(1 + 2 * eps, 1 + 3 * eps, 0.0, INF, NAN)
    assert disputed(old, new, "float32").tolist() == [False, True, False, False, False]


def test_nan_is_never_equal_to_nan() -> None:
    found = standing(array(NAN, 1.0), array(NAN, NAN), "float32", truth(2.0, 1.0))
    assert found.remaining.tolist() == [True, False]
    assert found.worse.tolist() == [False, True]


def test_a_changed_element_that_is_nearer_to_the_truth_is_not_worse() -> None:
    found = standing(array(1.0, 1.0), array(1.0001, 0.8), "float32", truth(1.0001, 1.0001))
    assert found.changed.all()
    assert found.worse.tolist() == [False, True]


def test_what_was_far_from_the_truth_and_no_longer_is_counts_as_neither_healthy_nor_changed() -> None:
    found = standing(array(1.0, 1.0, 1.0), array(2.0, 3.0, NAN), "float32", truth(2.0, 2.0, 2.0))
    assert found.healthy.tolist() == found.changed.tolist() == [False, True, True]
    assert not found.invented.any()


def test_far_is_what_has_lost_half_of_its_digits() -> None:
    known = format_of("float16")
    exact = truth(1.0, 1.0, 1.0, 0.0, 2 * known.max)
    values = array(1.02, 1.04, NAN, known.tiny, 1.0)
    assert is_far(values, "float16", exact).tolist() == [False, True, True, False, False]
    assert is_far(values, "float16", exact, usual=100.0).tolist() == [False, False, True, False, False]


def test_the_noise_of_the_original_excuses_eight_times_itself() -> None:
    old, new = array(1.0, 1.0), array(1.007, 1.009)
    assert standing(old, new, "float32", truth(1.0, 1.0, noise=1e-3)).worse.tolist() == [False, True]


def test_a_gradient_may_be_off_by_the_rounding_of_what_gradients_usually_are() -> None:
    old, new, exact = array(1e-8, 1e-3), array(0.0, 0.0), truth(1e-8, 1e-3)
    assert standing(old, new, "float32", exact).worse.tolist() == [True, True]
    assert standing(old, new, "float32", exact, usual=0.25).worse.tolist() == [False, True]


def test_a_gradient_may_be_off_by_the_rounding_of_the_value_that_it_comes_from() -> None:
    old, new, exact = array(1.0, 1.0, 1e-6), array(1.000009, 1.00002, 0.0), truth(1.0, 1.0, 1e-6)
    assert standing(old, new, "float32", exact).worse.tolist() == [True, True, True]
    assert standing(old, new, "float32", exact, rounded=1e-5).worse.tolist() == [False, True, True]


def test_a_finite_number_in_place_of_another_is_made_up_and_in_place_of_none_is_not() -> None:
    old = array(NAN, NAN, NAN, NAN, INF)
    new = array(-18.4, -120.0, 5.0, 5.0, 3e38)
    found = standing(old, new, "float32", truth(-120.0, -120.0, NAN, INF, 1e39))
    assert found.invented.tolist() == [True, False, False, False, False]


def test_an_infinity_is_right_where_the_truth_is_or_is_beyond_the_range() -> None:
    old, new = array(1.0, 1.0, 1.0), array(INF, INF, INF)
    found = standing(old, new, "float32", truth(INF, 1e39, 5.0))
    assert found.worse.tolist() == [False, False, True]


def test_without_a_truth_the_disputed_are_undecided() -> None:
    old, new = array(1.0, 1.0, INF), array(1.0, 2.0, 3.0)
    for found in (standing(old, new, "float32"), standing(old, new, "float32", truth(1, 1, 1, undecided=True))):
        assert found.undecided.tolist() == [False, True, True]
        assert not found.worse.any()
        assert not found.invented.any()
