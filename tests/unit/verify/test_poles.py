"""What a repaired may not give where the exact value is no number of the dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whynan.verify.comparison import Healthy, Truth, limit_objection, made_up_size, objection

NAN, INF = np.nan, np.inf
HEALTHY = Healthy(largest=2.0, usual=1.0)


def truth(value: float, *, infinite: bool = False, undefined: bool = False, undecided: bool = False) -> Truth:
    def mask(is_so: bool) -> Any:
        return np.array([is_so])

    return Truth(np.array([value]), mask(infinite), mask(undefined), mask(undecided), np.zeros(1))


@pytest.mark.parametrize(
    ("old", "new", "known", "right"),
    [
        # beyond the range: no nearer to 0 than what is healthy, and of the same sign
        (INF, 3e38, truth(1e50), None),
        (INF, 1.0, truth(1e50), "1e50"),
        (INF, -3e38, truth(1e50), "1e50"),
        # infinite: of the same sign, or 0
        (-INF, -87.3, truth(0.0, infinite=True), None),
        (-INF, 0.0, truth(0.0, infinite=True), None),
        (-INF, 42.0, truth(0.0, infinite=True), "-Inf"),
        # undefined: not out of all proportion
        (NAN, 0.0, truth(0.0, undefined=True), None),
        (NAN, -3.0, truth(0.0, undefined=True), None),
        (NAN, 7.0, truth(0.0, undefined=True), "undefined and nothing healthy is half as large"),
        # an exact one is told elsewhere, and what was healthy too
        (NAN, 7.0, truth(5.0), None),
        (1.0, 7.0, truth(0.0, undefined=True), None),
    ],
)
def test_a_number_that_makes_no_sense_is_objected_to(old: float, new: float, known: Truth, right: str | None) -> None:
    found = objection(np.array([old]), np.array([new]), "float32", known, HEALTHY, strict=True)
    assert (None if found is None else found.right) == right
    assert found is None or (found.place, found.value) == (0, new)


def test_an_infinity_whose_exact_value_is_not_told_is_too_large_for_a_guard() -> None:
    old, new = np.array([INF]), np.array([1.0])
    known = truth(0.0, undecided=True)
    assert objection(old, new, "float32", known, HEALTHY, strict=True) is not None
    assert objection(old, new, "float32", known, HEALTHY, strict=False) is None


def test_where_a_logarithm_is_taken_one_may_be_given() -> None:
    old, known = np.array([NAN]), truth(0.0, undefined=True)
    for logarithmic in (False, True):
        most = made_up_size("float32", HEALTHY, logarithmic=logarithmic)
        found = objection(old, np.array([-87.3]), "float32", known, HEALTHY, strict=True, most=most)
        assert (found is None) == logarithmic


@pytest.mark.parametrize("healthy", [HEALTHY, None])
def test_a_logarithm_of_what_rounding_took_out_of_the_domain_is_as_large_as_that(healthy: Healthy | None) -> None:
    old, new = np.array([NAN, NAN]), np.array([-87.3, -18.4])
    no, yes = np.array([False, False]), np.array([True, True])
    undefined = Truth(np.zeros(2), no, yes, no, np.zeros(2))
    nearest = np.array([16.0, 16.0])
    for known, place in ((nearest, 0), (np.array([NAN, NAN]), None)):
        most = made_up_size("float32", healthy, logarithmic=True, nearest=known)
        found = objection(old, new, "float32", undefined, healthy, strict=True, most=most)
        assert (None if found is None else found.place) == place


def test_where_nothing_is_healthy_nothing_is_out_of_proportion() -> None:
    assert Healthy.from_arrays([np.array([NAN, INF])]) is None
    assert Healthy.from_arrays([np.array([NAN, -3.0, 1.0, 2.0])]) == Healthy(3.0, 2.0)
    assert objection(np.array([NAN]), np.array([7.0]), "float32", truth(0.0, undefined=True), None, strict=True) is None


def test_what_the_values_beside_it_come_to_is_right() -> None:
    old = np.array([NAN, NAN, 1.0])
    around = [np.array([1.0, -3.0, 1.0]), np.array([0.9999, 3.0, 1.0])]
    assert limit_objection(old, np.array([1.0, 0.0, 5.0]), around, HEALTHY, list) is None
    found = limit_objection(old, np.array([0.0, 0.0, 1.0]), around, HEALTHY, list)
    assert found is not None
    assert (found.place, found.value) == (0, 0.0)
    assert found.right.startswith("undefined and the values beside it come to 1")


@pytest.mark.parametrize("around", [[], [np.array([1.0])], [np.array([1.0]), np.array([NAN])]])
def test_without_values_on_both_sides_there_is_no_limit(around: list[Any]) -> None:
    assert limit_objection(np.array([NAN]), np.array([0.0]), around, HEALTHY, list) is None


@pytest.mark.parametrize(
    ("nearer", "is_limit"),
    [([1.0, 0.9999], True), ([2.0, 2.0], False), ([2.0, 7.0], False), ([1.0], True), ([1.0, NAN], True)],
)
def test_where_nearer_values_come_to_another_number_there_is_no_limit(nearer: list[float], is_limit: bool) -> None:
    """As at a pole, where they grow."""
    around = [np.array([1.0]), np.array([0.9999])]
    found = limit_objection(
        np.array([-INF]), np.array([5.0]), around, HEALTHY, lambda: [np.array([value]) for value in nearer]
    )
    assert (found is not None) == is_limit


@pytest.mark.parametrize(
    ("scaled", "is_limit"),
    [([[1.4], [1.4]], True), ([[1.4], [-0.7]], False), ([[1.4], [NAN]], True), ([], True)],
)
def test_what_equal_numbers_alone_come_to_is_no_limit(scaled: list[list[float]], is_limit: bool) -> None:
    """As the mean of equal numbers with weights of 0: with other numbers it depends on the side."""
    around = [np.array([1.0]), np.array([0.9999])]
    found = limit_objection(
        np.array([NAN]), np.array([0.0]), around, HEALTHY, lambda: around, lambda: [np.array(v) for v in scaled]
    )
    assert (found is not None) == is_limit
