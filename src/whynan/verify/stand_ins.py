"""Stand-ins: what a fix gives where there is no exact value, or none that is known, and whether it may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.floats import format_of
from whynan.records.report import StandIn
from whynan.verify.comparison import is_far

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.records.report import Lack
    from whynan.verify.cases import Case
    from whynan.verify.comparison import Array, Healthy, Mask, Truth

_NEAREST: Final = 0.5
"""Of the possible value nearest to 0, so much at least is a stand-in for what has none that is known."""
_LAST: Final = 8.0
"""From this part of the greatest number of a dtype on it is in the last binades."""
_ROUNDED: Final = 1e-3
"""So far may it exceed that, by rounding."""
_LOST: Final = 1e-3
"""So far, relative to what is usual, is a number from an exact one that rounding has lost."""


@dataclass(frozen=True, slots=True)
class Possible:
    """The least and greatest exact values of what rounds to what was read, as far as known; NaN where none is.

    ``off``: where a fix makes a number of what was bad, and it is not the exact value of all of these.
    """

    off: Mask
    least: Array
    greatest: Array

    def stands(self, old: Array, new: Array, truth: Truth) -> Mask:
        """Where a number may stand for the exact value that is not known; ``truth`` is of what was read.

        Where that is an infinity, as the logarithm of 0, all possible values are on its side: a number ends short of
        them, by half at most, for a greater one exaggerates. Where it is undefined, as 0 / 0, it is 0 or lies between.
        """
        with np.errstate(invalid="ignore"):
            between = truth.undefined & (np.fmin(self.least, 0.0) <= new) & (new <= np.fmax(self.greatest, 0.0))
            side = np.where(np.isinf(old), np.sign(old), np.nan)
            one_side = (side * self.least > 0) & (side * self.greatest > 0)
            nearest = np.fmin(np.abs(self.least), np.abs(self.greatest))
            short = (_NEAREST * nearest <= side * new) & (side * new <= (1 + _ROUNDED) * nearest)
        return between | (truth.infinite & one_side & short)


def possible(name: str, case: Case, new: Array, nearby: Sequence[Mapping[str, Truth]]) -> Possible:
    """What the exact values of an output may be, of which ``nearby`` are some."""
    old, dtype = case.old[name]
    off = np.zeros(old.shape, dtype=bool)
    least, greatest = np.full(old.shape, np.nan), np.full(old.shape, np.nan)
    for truth in (each[name] for each in nearby if name in each):
        off |= mended(old, new) & is_far(new, dtype, truth)
        told = ~(truth.infinite | truth.undefined | truth.undecided)
        values = np.where(told, truth.values, np.nan)
        least, greatest = np.fmin(least, values), np.fmax(greatest, values)
    return Possible(off, least, greatest)


def mended(old: Array, new: Array) -> Mask:
    """Which elements were bad and are numbers now."""
    return ~np.isfinite(old) & np.isfinite(new)


def steep(name: str, case: Case, new: Mapping[str, Any], truths: Mapping[str, Truth] | None = None) -> Mask:
    """Where a value's slope is out of range, is finite now, and the value gave way for that by no more than half of it.

    So the logarithm of what is below the smallest normal number may end there. It is asked of programs that compute
    element by element. Of extreme inputs, and in dtypes that are not the run's, a slope is as good as out of range in
    the last binades.
    """
    old, given = case.old[name][0], new[name]
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.isfinite(old) & (given != old) & (np.abs(given - old) <= _NEAREST * np.abs(old))
    out_of_range = np.zeros(old.shape, dtype=bool)
    is_like_the_runs = case.sample.nature != "extreme" and not case.elsewhere
    for other, (gradient, dtype) in case.old.items():
        if other.isdecimal() or gradient.shape != old.shape:
            continue
        last = format_of(dtype).max / _LAST
        there = (np.isinf(gradient) if is_like_the_runs else np.abs(gradient) >= last) & np.isfinite(new[other])
        if truths is not None and (truth := truths.get(other)) is not None:
            # a slope that has a pole there does not leave the range for being too steep
            there &= ~(truth.infinite | truth.undefined | truth.undecided) & (np.abs(truth.values) >= last)
        out_of_range |= there
    return found & out_of_range


@dataclass(frozen=True, slots=True)
class Stated:
    """Elements of one array that have no exact value in reach, for one reason, and their exact values if any."""

    name: str
    lack: Lack
    there: Mask
    least: Array | None = None
    greatest: Array | None = None
    given: Array | None = None
    """What is given there, where it is not that of all that was mended in the whole case."""

    @classmethod
    def rounded(cls, name: str, exact: Possible) -> Stated:
        """Those of what had been rounded before it was read."""
        return cls(name, "unknown", exact.off, exact.least, exact.greatest)

    def stand_in(self, case: Case, new: Mapping[str, Any], *, whole: bool) -> StandIn:
        """What an output has in place of what was bad in a case.

        ``whole``: these are all of the case's elements; else what is given is that of all that was mended.
        """
        old, _ = case.old[self.name]
        given = (
            self.given
            if self.given is not None
            else new[self.name][self.there if whole else mended(old, new[self.name])]
        )
        return StandIn(
            output=int(self.name) if self.name.isdecimal() else None,
            lack=self.lack,
            least=float(given.min()),
            greatest=float(given.max()),
            count=int(self.there.sum()) if whole else None,
            total=old.size,
            exact_least=_known(np.nanmin, self.least, self.there),
            exact_greatest=_known(np.nanmax, self.greatest, self.there),
            gradient_zero=_is_gradient_zero(case, new) if self.name.isdecimal() else None,
        )


def inexact(name: str, old: Array, new: Array, dtype: str, truth: Truth) -> list[Stated]:
    """The elements that were bad and are numbers now, where the exact one is none of the dtype's, by the reason."""
    there, largest = mended(old, new), format_of(dtype).max
    told = ~(truth.infinite | truth.undefined | truth.undecided)
    values = np.where(told, truth.values, 0.0)
    beyond = told & (np.abs(values) > largest)
    values = np.where(np.isinf(values), np.nan, values)  # beyond float64, too: no number is near it
    beyond &= ~(np.abs(new - values) <= _ROUNDED * np.abs(values))
    found = (
        Stated(name, "undefined", there & truth.undefined),
        Stated(name, "infinite", there & truth.infinite),
        Stated(name, "beyond", there & beyond, values, values),
    )
    return [each for each in found if each.there.any()]


def lost(name: str, old: Array, new: Array, dtype: str, truth: Truth, healthy: Healthy | None) -> list[Stated]:
    """The elements that were bad and are numbers now, far from an exact one of which rounding leaves no digit.

    The original's own rounding tells nothing against such a number. It is far by what is usual of the healthy ones.
    """
    told = ~(truth.infinite | truth.undefined | truth.undecided) & (np.abs(truth.values) <= format_of(dtype).max)
    values = np.where(told, truth.values, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(values), 0.0 if healthy is None else healthy.usual)
        there = mended(old, new) & told & (np.abs(new - values) > _LOST * size)
    return [Stated(name, "rounding", there, values, values, new[there])] if there.any() else []


def _known(which: Callable[[Array], Any], values: Array | None, there: Mask) -> float | None:
    """One of some exact values; None where none is known."""
    if values is None or np.isnan(values[there]).all():
        return None
    return float(which(values[there]))


def merged(one: StandIn, other: StandIn) -> StandIn:
    """What two cases have in the same output for the same reason, as one."""

    def of(which: Callable[[list[Any]], Any], *values: Any) -> Any:
        known = [value for value in values if value is not None]
        return which(known) if known else None

    return StandIn(
        output=one.output,
        lack=one.lack,
        least=min(one.least, other.least),
        greatest=max(one.greatest, other.greatest),
        count=None if one.count is None or other.count is None else one.count + other.count,
        total=one.total + other.total,
        exact_least=of(min, one.exact_least, other.exact_least),
        exact_greatest=of(max, one.exact_greatest, other.exact_greatest),
        gradient_zero=of(all, one.gradient_zero, other.gradient_zero),
    )


def _is_gradient_zero(case: Case, new: Mapping[str, Any]) -> bool | None:
    """Whether every element of a gradient that was bad is 0 now; None where none was."""
    found = [new[name][mended(old, new[name])] for name, (old, _) in case.old.items() if not name.isdecimal()]
    given = np.concatenate([each.reshape(-1) for each in found]) if found else np.zeros(0)
    return bool((given == 0).all()) if given.size else None
