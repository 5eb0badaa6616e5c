"""Tally of a comparison over many cases: how many elements are worse, invented or undecided, and an example of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from whynan.verify.comparison import Standing, Truth, distances, standing
from whynan.verify.stand_ins import steep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.verify.cases import Case


@dataclass(frozen=True, slots=True)
class Example:
    """One element that speaks against a fix: of which array, what it was, what it became, what it should be."""

    case: str
    array: str
    index: tuple[int, ...]
    old: float
    new: float
    exact: float | None = None


@dataclass
class Ledger:
    """Counts of elements, and one example of each that matters.

    ``worse`` are the healthy elements that speak against the fix: further from the truth, or, of a fix that may change
    no value, changed values. ``lost`` of them are bad now. ``invented``, ``remaining`` and ``bad`` count what was bad
    in the original: finite and wrong now, bad still, and all. ``infinite``: the Inf that counts as healthy.
    """

    infinite: float | None = None
    meant: int = 0
    """How many have stayed that Inf."""
    healthy: int = 0
    worse: int = 0
    lost: int = 0
    bad: int = 0
    invented: int = 0
    remaining: int = 0
    undecided: int = 0
    furthest: float = 0.0
    ulps: float = 0.0
    off: float = 0.0
    """The largest relative error of the repaired on healthy elements, against the truth where it was asked."""
    arrays: set[str] = field(default_factory=set[str])
    """The arrays of which healthy elements were compared."""
    worst: Example | None = None
    made_up: Example | None = None
    gone: Example | None = None
    _squares: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    _moves: list[tuple[str, Any, Any]] = field(default_factory=list[tuple[str, Any, Any]])

    def add(
        self,
        case: Case,
        new: Mapping[str, Any],
        truths: Mapping[str, Truth] | None,
        *,
        strict: bool,
        judged: bool,
        by_element: bool,
    ) -> None:
        """One more run. ``strict``: every change of a value counts; else only what the truth speaks against.

        That is so of gradients in any case: they are sums, which a guard may well have autograd add in another order.

        ``by_element``: of a program that computes one value element by element, as far as it is known. Without truths,
        ``judged`` tells that it was asked for and could not be told; what it was not asked for is
        left out of the counts.
        """
        for name, (old, dtype) in case.old.items():
            truth = None if truths is None else truths.get(name)
            usual, rounded = case.usual.get(name, 0.0), case.rounded(name, new)
            found = standing(old, new[name], dtype, truth, usual=usual, rounded=rounded)
            at_all = strict and name.isdecimal()
            if by_element:
                found = found.without(_left_out(name, case, new, truths, strict=strict), new[name])
            self._count(case, name, old, new[name], dtype, found, truth, strict=at_all, judged=judged)

    def _count(
        self,
        case: Case,
        name: str,
        old: Any,
        new: Any,
        dtype: str,
        found: Standing,
        truth: Truth | None,
        *,
        strict: bool,
        judged: bool,
    ) -> None:
        worse = found.changed if strict else found.worse
        told = found.healthy if strict or truth is not None or judged else found.healthy & (~found.changed | worse)
        if self.infinite is not None:
            meant = (old == self.infinite) & (new == old)
            self.meant += int(meant.sum())
            told |= meant
        gone = worse & ~np.isfinite(new)
        self.healthy += int(told.sum())
        self.arrays |= {name} if told.any() else set()
        self.worse += int(worse.sum())
        self.lost += int(gone.sum())
        self.bad += int((~found.healthy).sum())
        self.invented += int(found.invented.sum())
        self.remaining += int(found.remaining.sum())
        if judged or truth is not None:
            self.undecided += int((found.undecided & ~worse).sum())
        apart, ulps = distances(old, new, dtype)
        exact = None if truth is None else truth.values
        if worse.any():
            place = int(np.argmax(np.where(worse, apart, -1.0)))
            if self.worst is None or apart.reshape(-1)[place] > self.furthest:
                self.worst = _example(case, name, place, old, new, exact)
            self.furthest = max(self.furthest, float(apart[worse].max()))
            usual = worse & ~_at_hazard(case, name)
            self._moves.append((f"{case.sample.dtype} {name}", apart[usual], np.abs(old[usual])))
        if gone.any() and self.gone is None:
            self.gone = _example(case, name, int(np.argmax(gone)), old, new, exact)
        if found.invented.any() and self.made_up is None:
            self.made_up = _example(case, name, int(np.argmax(found.invented)), old, new, exact)
        self._errors(name, old, new, ulps, told, truth, case.sample.dtype)

    def _errors(self, name: str, old: Any, new: Any, ulps: Any, told: Any, truth: Truth | None, dtype: str) -> None:
        if not told.any():
            return
        self.ulps = max(self.ulps, float(ulps[told].max()))
        sums = self._squares.setdefault(f"{dtype} {name}", [0.0, 0.0])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sums[0] += float(np.square(old[told]).sum())
            sums[1] += float(told.sum())
            known = told if truth is None else told & ~(truth.infinite | truth.undefined | truth.undecided)
            right = old if truth is None else np.where(known, truth.values, old)
            error = np.where(new == right, 0.0, np.abs(new - right) / np.abs(right))
        error = error[known & np.isfinite(error)]
        self.off = max(self.off, float(error.max()) if error.size else 0.0)

    @property
    def max_relative_change(self) -> float:
        """The largest relative change of a worse element; relative to it, or to what such elements are as a rule.

        Elements with a bad gradient are left out: a mend has to move them.
        """
        largest = 0.0
        for name, apart, magnitude in self._moves:
            squares, count = self._squares.get(name, [0.0, 0.0])
            usual = np.sqrt(squares / count) if count else 0.0
            size = np.maximum(magnitude, usual if np.isfinite(usual) else 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                relative = np.where(apart > 0, apart / size, 0.0)
            largest = max(largest, float(relative.max(initial=0.0)))
        return np.inf if self.lost else largest


def _example(case: Case, name: str, place: int, old: Any, new: Any, exact: Any) -> Example:
    index = tuple(int(i) for i in np.unravel_index(place, old.shape))
    return Example(
        case.sample.title, name, index, float(old[index]), float(new[index]), None if exact is None else exact[index]
    )


def _left_out(
    name: str, case: Case, new: Mapping[str, Any], truths: Mapping[str, Truth] | None, *, strict: bool
) -> Any:
    """Which elements are no healthy ones, of a program that computes one value element by element.

    A value whose slope is out of range, and the gradient there; and the gradient of a value that is bad and has no
    exact one.
    """
    value, _ = case.old["0"]
    found = np.zeros(case.old[name][0].shape, dtype=bool)
    if found.shape != value.shape:
        return found
    if strict:
        found |= steep("0", case, new, truths)
    if name != "0" and truths is not None and "0" in truths:
        found |= ~np.isfinite(value) & truths["0"].undefined
    return found


def _at_hazard(case: Case, name: str) -> Any:
    """Which elements of a value are where a gradient of the original is bad, as far as the shapes tell.

    A gradient of the same shape tells of each element, one that the value was reduced from of rows; any other of all.
    """
    old, _ = case.old[name]
    found = np.zeros(old.shape, dtype=bool)
    for other, (gradient, _) in case.old.items():
        if other == name or other.isdecimal():
            continue
        bad = ~np.isfinite(gradient)
        if gradient.shape == old.shape:
            found |= bad
        elif gradient.shape[: old.ndim] == old.shape:
            found |= bad.any(axis=tuple(range(old.ndim, gradient.ndim)))
        elif bad.any():
            found[...] = True
    return found
