"""Comparison of original, repaired and exact values, element by element, poles included."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from whynan.floats import format_of, format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# -- Original against repaired, element by element, and both against the exact values; arrays only, no framework -------


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

    def without(self, left_out: Mask, new: Array) -> Standing:
        """The same but for some elements, of which nothing is asked but that they do not become bad: ``new``."""
        kept = ~left_out | ~np.isfinite(new)
        return replace(
            self,
            healthy=self.healthy & kept,
            changed=self.changed & kept,
            worse=self.worse & kept,
            undecided=self.undecided & kept,
        )


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


def is_wrong_beyond(values: Array, dtype: str, wider: str, truth: Truth) -> Mask:
    """Where the exact element is beyond a dtype, in the range of a wider one, and another than in ``values``."""
    known = format_of(dtype)
    exact = np.where(truth.infinite | truth.undefined | truth.undecided, 0.0, truth.values)
    beyond = (np.abs(exact) > known.max) & (np.abs(exact) <= format_of(wider).max)
    with np.errstate(invalid="ignore"):
        return beyond & ~(np.abs(values - exact) <= OF_USUAL * known.eps * np.abs(exact))


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


# -- What a repaired may give where the exact value is no number of the dtype: beyond its range, infinite or
# undefined
#
# Nothing is right there, and much is wrong: a number of the other sign; one nearer to 0 than what is healthy, where
# the exact one is too large; any but the limit where there is one; one that is larger than all that is healthy.


_ALIKE: Final = 1e-3
"""So near each other, relative to usual values, are the values around a point that have a limit there."""
_AT_LIMIT: Final = 1e-2
"""So near has what is given there to be to it."""
_WIDER: Final = 2.0
"""So much larger than any healthy value may be what is given where there is no exact one."""

_UNDEFINED: Final = "undefined and nothing healthy is half as large"


@dataclass(frozen=True, slots=True)
class Healthy:
    """What the healthy values of one array are: the largest magnitude and the middle one."""

    largest: float
    usual: float

    @classmethod
    def from_arrays(cls, arrays: Sequence[Array]) -> Healthy | None:
        """Those of some arrays; None where nothing is healthy in them."""
        finite = [np.abs(array[np.isfinite(array)]) for array in arrays]
        every = np.concatenate(finite) if finite else np.zeros(0)
        return cls(float(every.max()), float(np.median(every))) if every.size else None


@dataclass(frozen=True, slots=True)
class Objection:
    """One element that speaks against a fix: where it is, what was given, and in words what is right there."""

    place: int
    value: float
    right: str


def objection(
    old: Array,
    new: Array,
    dtype: str,
    truth: Truth,
    healthy: Healthy | None,
    *,
    strict: bool,
    most: Array | float | None = None,
) -> Objection | None:
    """The first element that was bad, is a number now, and makes no sense as one; None where all do.

    ``strict``: an Inf of which the exact value could not be told is taken to be one that is too large. ``most``:
    what is undefined may be given a number as large as this, though nothing healthy is half as large.
    """
    there = ~np.isfinite(old) & np.isfinite(new)
    largest = format_of(dtype).max
    infinite = there & truth.infinite & np.isinf(old)
    undefined = there & truth.undefined
    beyond = there & ~truth.infinite & ~truth.undefined & ~truth.undecided & (np.abs(truth.values) > largest)
    untold = there & truth.undecided & np.isinf(old) & strict
    side = np.where(untold, np.sign(old), np.sign(truth.values))
    least = 0.0 if healthy is None else min(healthy.largest, largest)
    near_zero = (new * side <= 0) | (np.abs(new) < least)
    other_side = (new != 0) & (np.sign(new) != np.sign(old))
    found = [
        (beyond & near_zero, truth.values),
        (untold & near_zero, side * largest),
        (infinite & other_side, old),
    ]
    most = made_up_size(dtype, healthy) if most is None else most
    room = np.maximum(0.0 if healthy is None else _WIDER * healthy.largest, most)
    found.append((undefined & (np.abs(new) > room), np.full_like(new, np.nan)))
    for mask, right in found:
        if mask.any():
            place = int(np.argmax(mask))
            exact = float(right.reshape(-1)[place])
            return Objection(
                place, float(new.reshape(-1)[place]), _UNDEFINED if exact != exact else format_value(exact)
            )
    return None


def made_up_size(
    dtype: str, healthy: Healthy | None, *, logarithmic: bool = False, nearest: Array | None = None
) -> Array | float:
    """How large a number may stand for what is undefined, though nothing healthy is half as large.

    As large as the logarithm of the smallest normal number for a ``logarithmic`` one; but where the operand is out of
    the domain by its own rounding the logarithm is known as far as that: ``nearest``. Any where nothing is healthy.
    """
    most = math.inf if healthy is None else _WIDER * -math.log(format_of(dtype).tiny) if logarithmic else 0.0
    return most if nearest is None else np.where(np.isnan(nearest), most, _WIDER * nearest)


def limit_objection(
    old: Array,
    new: Array,
    around: Sequence[Array],
    healthy: Healthy | None,
    nearer: Callable[[], Sequence[Array]],
    scaled: Callable[[], Sequence[Array]] = list,
) -> Objection | None:
    """The first element that was bad and is a number now, but not the one that the values around it come to.

    At the edge of a domain these are on one side alone. Those ``nearer`` to the element come to the same: where they do
    not, as at a pole, there is no limit. Nor is there one where it is of these numbers alone, as that of a weighted
    mean is of equal ones: the values around the same zeros, with other numbers beside them (``scaled``), come to
    nothing.
    """
    if len(around) < 2:
        return None
    middle, _, alike = _come_to(around, healthy)
    size = np.maximum(np.abs(middle), 1.0 if healthy is None else healthy.usual)
    wrong = ~np.isfinite(old) & np.isfinite(new) & alike & ~(np.abs(new - middle) <= _AT_LIMIT * size)
    if wrong.any() and len(closer := nearer()) > 1:
        end, known, still = _come_to(closer, healthy)
        wrong &= ~known | (still & (np.abs(end - middle) <= _AT_LIMIT * size))
    if wrong.any() and len(others := scaled()) > 1:
        _, known, still = _come_to(others, healthy)
        wrong &= ~known | still
    if not wrong.any():
        return None
    place = int(np.argmax(wrong))
    # it is known to a few digits alone
    limit = format_value(float(f"{middle.reshape(-1)[place]:.3g}"))
    return Objection(place, float(new.reshape(-1)[place]), f"undefined and the values beside it come to {limit}")


def _come_to(values: Sequence[Array], healthy: Healthy | None) -> tuple[Array, Mask, Mask]:
    """What some values of each element come to; whether at least two are known; and whether these are all alike."""
    finite = np.stack([np.isfinite(one) for one in values])
    given = np.where(finite, np.stack([*values]), 0.0)
    number = finite.sum(axis=0)
    middle = given.sum(axis=0) / np.maximum(number, 1)
    size = np.maximum(np.abs(middle), 1.0 if healthy is None else healthy.usual)
    spread = np.where(finite, np.abs(given - middle), 0.0).max(axis=0)
    return middle, number >= 2, (number >= 2) & (spread <= _ALIKE * size)


def at_kink(new: Array, around: Sequence[Array], nearer: Sequence[Array]) -> Mask:
    """Where a gradient at a kink is one of its subgradients, as 0 is of a norm at 0: between those around, or 0.

    PyTorch gives such ones where a function has no derivative ("Gradients for non-differentiable functions" of its
    notes on autograd). ``nearer`` are gradients nearer to the point than those ``around``: at a pole they are larger.
    Where the function has values on one side alone, 0 is a subgradient as well.
    """
    if not around or not nearer:
        return np.zeros(new.shape, dtype=bool)
    every: Array = np.stack([*around, *nearer])
    unknown: Mask = np.isnan(every)
    ends = [*every, np.where(unknown.any(axis=0), 0.0, np.nan)]
    far, near = (np.fmax.reduce(np.abs(each)) for each in (around, nearer))
    with np.errstate(invalid="ignore"):
        bounded = near <= (1 + _AT_LIMIT) * far
        return ~unknown.all(axis=0) & bounded & (np.fmin.reduce(ends) <= new) & (new <= np.fmax.reduce(ends))


def at_limit(new: Array, around: Sequence[Array], healthy: Healthy | None) -> Mask:
    """Where what is given is what the values around come to, on every side on which there are any."""
    found, known = np.ones(new.shape, dtype=bool), np.zeros(new.shape, dtype=bool)
    size = np.maximum(np.abs(new), 1.0 if healthy is None else healthy.usual)
    for values in around:
        known |= np.isfinite(values)
        with np.errstate(invalid="ignore"):
            found &= np.isnan(values) | (np.abs(np.where(np.isnan(values), new, values) - new) <= _AT_LIMIT * size)
    return known & found
