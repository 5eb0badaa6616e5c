"""What a repaired may give where the exact value is no number of the dtype: beyond its range, infinite or undefined.

Nothing is right there, and much is wrong: a number of the other sign; one nearer to 0 than what is healthy, where
the exact one is too large; any but the limit where there is one; one that is larger than all that is healthy.
"""

# pyright: strict

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.floats import format_of, format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.verify.comparing import Array, Mask, Truth

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
    def of(cls, arrays: Sequence[Array]) -> Healthy | None:
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


def off_the_limit(old: Array, new: Array, around: Sequence[Array], healthy: Healthy | None) -> Objection | None:
    """The first element that was bad and is a number now, but not the one that the values around it come to."""
    if len(around) < 2:
        return None
    known: Mask = np.logical_and.reduce([np.isfinite(one) for one in around])
    middle = np.where(known, np.mean([np.where(known, one, 0.0) for one in around], axis=0), 0.0)
    size = np.maximum(np.abs(middle), 1.0 if healthy is None else healthy.usual)
    spread = np.max([np.abs(np.where(known, one, 0.0) - middle) for one in around], axis=0)
    wrong = ~np.isfinite(old) & np.isfinite(new) & known & (spread <= _ALIKE * size)
    wrong &= ~(np.abs(new - middle) <= _AT_LIMIT * size)
    if not wrong.any():
        return None
    place = int(np.argmax(wrong))
    # it is known to a few digits alone
    limit = format_value(float(f"{middle.reshape(-1)[place]:.3g}"))
    return Objection(place, float(new.reshape(-1)[place]), f"undefined and the values beside it come to {limit}")
