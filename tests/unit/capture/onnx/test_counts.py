"""Values that are counted all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whynan.capture.onnx.counts import Counts
from whynan.capture.onnx.statistics import CHUNK, counters

RNG = np.random.default_rng(0)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-41, -1e-41, np.float32(np.finfo(np.float32).max)]


def side_by_side(sizes: list[int], dtype: Any = np.float32) -> list[Any]:
    """Arrays in one memory, some with gaps that hold NaN between them."""
    memory = np.full(sum(sizes) + 16 * len(sizes), np.nan, dtype)
    found, begin = [], 0
    for i, size in enumerate(sizes):
        memory[begin : begin + size] = RNG.uniform(1, 2, size)
        found.append(memory[begin : begin + size].reshape(2, -1))
        begin += size + 16 * (i % 2)
    return found


class Once(Counts):
    """Counts of which nothing is counted when it is asked for."""

    def known(self, value: Any) -> Any:
        found = self._known[id(value)]
        assert found[0]() is value
        return found[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [2, 4])
def test_many_at_a_time_are_counted_as_each_is(dtype: Any, threads: int) -> None:
    arrays = side_by_side([10_000, 20_000, 8_192, 3 * CHUNK, 40_000, CHUNK, CHUNK - 2, 12_000, 9_000, 30_000], dtype)
    for i, array in enumerate(arrays):
        if i % 3:
            array *= -1 if i % 3 == 1 else RNG.choice([-1, 1], array.shape)
        places = RNG.choice(array.size, len(SPECIAL), replace=False)
        if i % 4 != 1:
            array.reshape(-1)[places[: i + 1]] = SPECIAL[: i + 1]
    counts = Once(threads)
    counts.ahead([*arrays, arrays[0], np.zeros(3, np.float32), None, [arrays[0]], np.arange(10**6)])
    for array in arrays:
        assert counts.known(array) == counters(array)


def test_the_first_and_the_last_element_of_neighbours_are_their_own() -> None:
    for place in (0, -1):
        for bad in SPECIAL:
            arrays = side_by_side([200_000] * 4)
            arrays[1].reshape(-1)[place] = bad
            counts = Once(2)
            counts.ahead(arrays)
            assert [counts.known(array) for array in arrays] == [counters(array) for array in arrays]


def test_of_little_nothing_is_counted_before_it_is_asked_for() -> None:
    counts, array = Counts(2), np.zeros(20_000, np.float32)
    counts.ahead([array])
    array[:] = np.nan
    assert counts(array).n_nan == 20_000
