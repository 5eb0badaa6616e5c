"""Fingerprints: values that are the same numbers, whatever they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np

from whynan.compare.sides.double import is_floating

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.compare.sides.operations import Array

NEAR: Final = 1e-3
"""Numbers that are further apart, relative to their size, are not taken for the same."""
_LEAST: Final = 2
"""Elements; a single number may be equal to another by chance."""
_SAMPLE: Final = 4096


def distance(one: Array, other: Array) -> float:
    """The norm of a difference over the norm, of all elements that differ; infinite where the sizes differ, or NaN.

    What is the same number on both sides, as the fill of a mask is, says nothing of the others.
    """
    if one.size != other.size:
        return np.inf
    first, second = _flat(one), _flat(other)
    with np.errstate(all="ignore"):
        bad = ~np.isfinite(first)
        if not np.array_equal(bad, ~np.isfinite(second)):
            return np.inf
        other_bits = ~bad & (first != second)
        first, second = first[other_bits], second[other_bits]
        size = float(np.linalg.norm(second))
        return float(np.linalg.norm(first - second)) / size if size else float(np.linalg.norm(first) > 0)


def nearest_pairs(
    ours: Mapping[str, Array],
    theirs: Mapping[str, Array],
    places: tuple[dict[str, int], dict[str, int]],
    makers: tuple[Mapping[str, str], Mapping[str, str]],
) -> list[tuple[str, str]]:
    """The pairs of values each of which is the nearest of the other, in the order of the second side.

    Equal numbers are told apart by the operators that make them, ``makers``, and by ``places``, of each value the
    number of aligned ones before it.
    """
    alike: dict[tuple[tuple[int, ...], bool], list[str]] = {}
    for name, value in ours.items():
        if _telling(value):
            alike.setdefault((value.shape, is_floating(value)), []).append(name)
    prints = {key: _Prints([ours[name] for name in names]) for key, names in alike.items()}
    best: dict[str, list[tuple[float, bool, int, int, str]]] = {}
    ranks = {name: number for number, name in enumerate(ours)}
    for number, (there, value) in enumerate(theirs.items()):
        key = value.shape, is_floating(value)
        if key not in prints or not _telling(value):
            continue
        for here, far in zip(alike[key], prints[key].distances(value), strict=True):
            if far < NEAR:
                apart = abs(places[0].get(here, 0) - places[1].get(there, 0))
                best.setdefault(there, []).append(
                    (_rounded(far), makers[0].get(here) != makers[1].get(there), apart, abs(ranks[here] - number), here)
                )
    found: dict[str, tuple[tuple[float, bool, int, int], str]] = {}
    for there, candidates in best.items():
        *rank, here = min(candidates)
        order_of = cast("tuple[float, bool, int, int]", tuple(rank))
        if here not in found or order_of < found[here][0]:
            found[here] = order_of, there
    order = {name: number for number, name in enumerate(theirs)}
    return sorted(((here, there) for here, (_, there) in found.items()), key=lambda pair: order[pair[1]])


class _Prints:
    """Values of one shape side by side, so that another is compared with all of them in one go."""

    def __init__(self, values: Sequence[Array]) -> None:
        self._rows: Array = np.stack([_flat(value) for value in values])
        self._finite: Array = np.isfinite(self._rows)

    def distances(self, value: Array) -> list[float]:
        """As ``distance``, of a value to each."""
        flat = _flat(value)
        finite = np.isfinite(flat)
        with np.errstate(all="ignore"):
            differ = finite & (flat != self._rows)
            apart = np.where(differ, flat - self._rows, 0.0)
            against = np.where(differ, self._rows, 0.0)
            gap: Array = np.sqrt(np.einsum("ij,ij->i", apart, apart))
            size: Array = np.sqrt(np.einsum("ij,ij->i", against, against))
            far: Array = np.where(size > 0, gap / size, (gap > 0).astype(np.float64))
        far = np.where((self._finite != finite).any(axis=1), np.inf, far)
        return [float(each) for each in far]


def _rounded(far: float) -> float:
    """Distances of one magnitude count as equal."""
    return 0.0 if far == 0 else float(2.0 ** np.floor(np.log2(far)))


def _telling(value: Array) -> bool:
    """Whether a value is told by its numbers: not one number, nor all the same."""
    return value.size >= _LEAST and value.dtype != object and bool((value != value.reshape(-1)[0]).any())


def _flat(value: Array) -> Array:
    flat = value.reshape(-1)
    if flat.size > _SAMPLE:
        flat = flat[:: flat.size // _SAMPLE]
    return flat.astype(np.float64)
