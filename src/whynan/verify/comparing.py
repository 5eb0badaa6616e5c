"""Original against repaired, element by element, and both against the exact values; arrays only, no framework."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whynan.floats import format_of

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ULPS: Final = 2.0
"""So many units in the last place may a healthy element differ by without being looked at."""
OF_USUAL: Final = 16.0
"""So many units in the last place of a usual element may one of a gradient be off by: it is used as a whole."""
MOST_LOST: Final = 1e-3
"""What was bad may have lost half of its digits once it is finite, though never be off by more than so much."""
NOISY: Final = 8.0
"""So many times its own rounding noise may a reformulation be off; between 4 and 64 no verdict depends on it."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The exact elements of one array.

    ``values`` are meaningless where another mask holds: the exact element is infinite, or undefined (0/0), or could
    not be told with the precision allowed. ``noise`` is the largest deviation that the original's own rounding can
    cause, 0 where that was not asked for.
    """

    values: Array
    infinite: Mask
    undefined: Mask
    undecided: Mask
    noise: Array


@dataclass(frozen=True, slots=True)
class Standing:
    """How each element of a repaired array stands to the original and, where it was asked, to the exact one.

    ``healthy``: finite in the original. ``changed``: healthy and more than 2 ulp from the original, or no longer
    finite; what was far from the truth and no longer is counts as neither. Of the changed, ``worse`` are further from
    the truth than the original's noise excuses. Of the unhealthy, ``invented`` are finite where the exact element is
    another finite one in range, ``remaining`` are still bad where it is. ``undecided`` are those of either kind whose
    truth could not be told.
    """

    healthy: Mask
    changed: Mask
    worse: Mask
    invented: Mask
    remaining: Mask
    undecided: Mask


def spacing(values: Array, dtype: str) -> Array:
    """The distance between neighbours of ``dtype`` at each value, as :meth:`whynan.floats.Format.ulp` gives it."""
    known = format_of(dtype)
    magnitude = np.where(np.isfinite(values), np.abs(values), known.max)
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, known.min_exponent)
    return np.ldexp(1.0, np.maximum(exponent, known.min_exponent) - known.fraction_bits)


def disputed(old: Array, new: Array, dtype: str) -> Mask:
    """Where the truth has to decide: healthy elements that changed, and unhealthy ones that are finite now."""
    return _changed(old, new, dtype) | (~np.isfinite(old) & np.isfinite(new))


def standing(
    old: Array, new: Array, dtype: str, truth: Truth | None = None, *, usual: float = 0.0, rounded: float = 0.0
) -> Standing:
    """How ``new`` stands to ``old``; without the truth all that it would decide is undecided.

    A changed element is no worse if ``|new - truth| <= max(|old - truth|, 8 noise) + 2 ulp`` and one smallest normal
    number, which forgives gradients flushed to zero. Of gradients, which are ``usual`` of some size, 16 ulp of that
    are forgiven too: the derivatives of ``sigmoid`` and ``tanh`` themselves come from what these have rounded; and
    ``rounded`` of themselves: that of ``logsumexp`` is ``exp(x - y)`` of a ``y`` that was rounded. What was
    bad is invented only if it has lost half of its digits besides, as the gradient of ``logsumexp`` never has. Where
    the truth is infinite or undefined any finite element of the repaired passes; where it is beyond the range of the
    dtype nothing can be said against any.
    """
    healthy = np.isfinite(old)
    changed = _changed(old, new, dtype)
    asked = disputed(old, new, dtype)
    nothing = np.zeros_like(healthy)
    if truth is None:
        return Standing(healthy, changed, nothing, nothing, nothing, asked)
    known = format_of(dtype)
    told = ~(truth.infinite | truth.undefined | truth.undecided)
    in_range = told & (np.abs(truth.values) <= known.max)
    off = np.where(told, truth.values, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        before, after = np.abs(old - off), np.abs(new - off)
        excused = np.maximum(np.where(healthy, before, 0.0), NOISY * truth.noise)
        near = after <= excused + ULPS * spacing(off, dtype) + known.tiny
        known_by_digits = after <= min(known.eps**0.5, MOST_LOST) * np.abs(off)
        if usual:
            near |= after <= OF_USUAL * spacing(np.array(usual), dtype)
        if rounded:
            near |= after <= rounded * np.abs(off)
    mended = changed & is_far(old, dtype, truth, usual=usual) & ~is_far(new, dtype, truth, usual=usual)
    healthy, changed = healthy & ~mended, changed & ~mended
    gone = changed & ~np.isfinite(new) & ~_right_infinity(new, truth, known.max)
    return Standing(
        healthy,
        changed,
        worse=gone | (changed & told & ~near & ~_right_infinity(new, truth, known.max)),
        invented=~np.isfinite(old) & np.isfinite(new) & in_range & ~near & ~known_by_digits,
        remaining=~np.isfinite(old) & ~np.isfinite(new) & in_range,
        undecided=asked & truth.undecided & ~gone,
    )


def is_far(values: Array, dtype: str, truth: Truth, *, usual: float = 0.0) -> Mask:
    """Which elements have lost half of their digits, or more, where the exact one is in range; bad ones have too.

    What the smallest normal number would excuse, or the original's noise, and of gradients 16 ulp of a ``usual`` one,
    is not far.
    """
    known = format_of(dtype)
    told = ~(truth.infinite | truth.undefined | truth.undecided)
    exact = np.where(told, truth.values, 0.0)
    size = np.abs(exact)
    room = np.maximum(np.sqrt(known.eps) * size, ULPS * spacing(exact, dtype) + known.tiny)
    if usual:
        room = np.maximum(room, OF_USUAL * spacing(np.array(usual), dtype))
    with np.errstate(invalid="ignore", over="ignore"):
        room = np.maximum(room, NOISY * truth.noise)
        return told & (size <= known.max) & ~(np.abs(values - exact) <= room)


def distances(old: Array, new: Array, dtype: str) -> tuple[Array, Array]:
    """How far each element is from the original: absolute, and in units of the last place; 0 where either is bad."""
    both = np.isfinite(old) & np.isfinite(new)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(both, np.abs(new - old), 0.0)
        return apart, apart / spacing(_larger(old, new), dtype)


def _changed(old: Array, new: Array, dtype: str) -> Mask:
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(new - old)
    return np.isfinite(old) & ~(apart <= ULPS * spacing(_larger(old, new), dtype))


def _larger(old: Array, new: Array) -> Array:
    return np.where(np.isfinite(new) & (np.abs(new) > np.abs(old)), new, old)


def _right_infinity(new: Array, truth: Truth, largest: float) -> Mask:
    """Where the repaired is infinite and so is the exact element, or it is beyond the range."""
    beyond = truth.infinite | (~truth.undefined & ~truth.undecided & (np.abs(truth.values) > largest))
    return np.isinf(new) & beyond
