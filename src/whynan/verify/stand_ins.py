"""Stand-ins: what a fix gives where there is no exact value, or none that is known, and whether it may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from whynan.records.report import StandIn
from whynan.verify.comparison import is_far

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.verify.cases import Case
    from whynan.verify.comparison import Array, Mask, Truth

Lack = Literal["undefined", "unknown", "infinite"]

_NEAREST: Final = 0.5
"""Of the possible value nearest to 0, so much at least is a stand-in for what has none that is known."""
_ROUNDED: Final = 1e-3
"""So far may it exceed that, by rounding."""


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


def stand_in(
    name: str,
    lack: Lack,
    case: Case,
    new: Mapping[str, Any],
    *,
    there: Mask | None = None,
    exact: Possible | None = None,
) -> StandIn:
    """What an output has in place of what was bad.

    ``there``: in which elements, where that is known of all of them; else what is given is that of all that was mended.
    """
    old, _ = case.old[name]
    given = new[name][mended(old, new[name]) if there is None else there]
    least, greatest = (None, None) if exact is None else (exact.least[exact.off], exact.greatest[exact.off])
    return StandIn(
        output=int(name),
        lack=lack,
        least=float(given.min()),
        greatest=float(given.max()),
        count=None if there is None else int(there.sum()),
        total=old.size,
        exact_least=None if least is None or np.isnan(least).all() else float(np.nanmin(least)),
        exact_greatest=None if greatest is None or np.isnan(greatest).all() else float(np.nanmax(greatest)),
        gradient_zero=_is_gradient_zero(case, new),
    )


def merged(one: StandIn, other: StandIn) -> StandIn:
    """What two cases have in the same output, as one; the lack is that of the first."""

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
