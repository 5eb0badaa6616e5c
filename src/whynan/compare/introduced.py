"""The introduced error: what an operation of B makes of the operands that A had, beside what A made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.compare.fingerprints import distance
from whynan.compare.localisation import (
    SAME,
    faulty_operation,
    foreign_operation,
    inner_pair,
    strange_weights,
    superfluous_operation,
)
from whynan.compare.sides.double import is_floating
from whynan.compare.sides.operations import UnavailableError
from whynan.compare.spelling import base
from whynan.compare.stretches import Culprit, walk
from whynan.compare.tolerance import SUMS, Rounding, least_normal, mixes, narrowest, usual_size
from whynan.ops.table import ONNX, TORCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whynan.compare.alignment import Alignment
    from whynan.compare.sides.operations import Array, Operation
    from whynan.compare.stretches import SideRun, Sort, Stretch
    from whynan.compare.tolerance import Exact

_ULPS: Final = 8.0
"""Errors below so many unit roundoffs of the number itself are not looked into."""
_MIXED: Final = 16.0
"""Errors below so many unit roundoffs of the usual size of a value are not looked into, where elements are mixed."""
_SUM: Final = 4.0
"""Unit roundoffs of the sum of the magnitudes that any sum of products is entitled to."""
_LOST: Final = 256.0
"""Unit roundoffs, relative to the largest number, that are let pass where no exact value can be had."""
_STABLE: Final = 256.0
"""So many times what one side may lose is no rounding of the other, where the exact values differ as well."""
_NARROWINGS: Final = 8
_FORMULA: Final = 16
"""Operations; more of them round so often that no one operation is a measure of them."""
_RANDOM: Final = TORCH.having("random") | ONNX.having("random")
_DROPPING: Final = "dropout"
_RESHAPING: Final = ONNX.having("reshape")
_MOVING: Final = ONNX.having("movement")
_PASSING: Final = frozenset(ONNX.having("movement", "reshape", "form"))
_STEPWISE: Final = TORCH.having("stepwise") | ONNX.having("stepwise")


class Search:
    """Looks for introduced errors along the aligned values of two runs, in the order of B."""

    def __init__(self, a: SideRun, b: SideRun, alignment: Alignment) -> None:
        self._a, self._b = a, b
        self._alignment = alignment
        self._pairs = alignment.pairs
        self._known = set(alignment.pairs)
        self._ours = set(alignment.taken)
        units = [narrowest(run.side, {name: run.values[name] for name in run.values}) for run in (a, b)]
        self.roundoff = max(units)
        self.examined = 0
        """Stretches that were run in float64."""
        self.unjudged: list[str] = []
        """Values of which no exact value could be had."""
        self.narrowed = False
        """Whether A's value in the place of one of B mended the rest: the two are forms of one model."""
        self.random: list[str] = []
        """Operations that draw numbers."""

    def localised(self, culprit: Culprit) -> Culprit:
        """A culprit of several operations, narrowed to fewer, and to the one at fault."""
        for _ in range(_NARROWINGS):
            pair = inner_pair(self._a, self._b, culprit)
            if pair is None or not self._alignment.add(*pair, "fingerprint"):
                break
            self.narrowed = True
            self._known.add(pair[0])
            self._ours.add(pair[1])
            nearer = self._culprit(pair[0])
            if nearer is None:
                break
            culprit = nearer
        if len(culprit.stretch.operations) > 1 and culprit.sort != "kernel":
            operation = superfluous_operation(self._a, self._b, culprit)
            operation = operation or strange_weights(self._a, self._b, culprit)
            operation = operation or faulty_operation(self._a, self._b, self._alignment, culprit)
            operation = operation or foreign_operation(culprit, _PASSING)
            operation = operation or _last_of(culprit, self._a.value(culprit.other_value))
            if operation is not None:
                return replace(culprit, operation=operation)
        return culprit

    def culprits(self) -> Iterator[Culprit]:
        """What introduces an error out of line, in the order of B's execution."""
        for operation in self._b.side.operations:
            for value in operation.outputs:
                if value in self._pairs and (found := self._culprit(value)) is not None:
                    yield found

    def _culprit(self, value: str) -> Culprit | None:
        other = self._pairs[value][0]
        a, b = self._a.value(other), self._b.value(value)
        if a is None or b is None or a.dtype == object or not self._differs(a, _like(b, a)):
            return None
        stretch = self._b.stretch(value, self._known)
        mine = self._a.stretch(other, self._ours)
        mixed = mixes(stretch.operations) and mixes(mine.operations)
        if mixed and not self._differs(a, _like(b, a), mixed=True):
            return None
        if drawn := next((o for o in (*stretch.operations, *mine.operations) if _draws(o)), None):
            self.random.append(drawn.name)
            return None
        given = self._given(stretch)
        if given is None:
            return None
        made = self._made(stretch, given, b)
        if made is None:
            self.unjudged.append(value)
            return None
        made = _like(made, a)
        if not self._differs(a, made, mixed=mixed) or self._is_order_of_sum(stretch, given, a, made):
            return None
        return self._examined(stretch, mine, given, a, _like(b, a), made)

    def _differs(self, a: Array, b: Array, *, mixed: bool = False) -> bool:
        """Whether two values differ by more than a few roundings of the numbers themselves.

        Those of what mixes elements are also roundings of what is usual among them.
        """
        if a.shape != b.shape:
            return True
        if not is_floating(a) or not is_floating(b):
            return bool((a != b).any())
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            usual = usual_size(x) if mixed else 0.0
            near = np.abs(x - y) <= self.roundoff * (_ULPS * np.abs(x) + _MIXED * usual) + least_normal(self.roundoff)
        return not bool(((near & np.isfinite(x)) | _same_bad(x, y)).all())

    def _is_order_of_sum(self, stretch: Stretch, given: Mapping[str, Array], a: Array, made: Array) -> bool:
        """Whether a difference is below what a sum of products may lose in any order: a cheap first look."""
        operation = stretch.operations[-1]
        if len(stretch.operations) > 1 or base(operation.op) not in SUMS or a.shape != made.shape:
            return False
        constants = {n: c for n in operation.inputs if n not in given and (c := self._b.side.constant(n)) is not None}
        sizes = {name: np.abs(v) if is_floating(v) else v for name, v in {**constants, **given}.items()}
        try:
            total = self._b.side.evaluate(operation, sizes)[0]
        except UnavailableError:
            return False
        x, y = a.astype(np.float64), made.astype(np.float64)
        with np.errstate(all="ignore"):
            return bool((np.abs(x - y) <= _SUM * self.roundoff * _like(total, a).astype(np.float64)).all())

    def _is_rounding(self, ours: Rounding, theirs: Rounding, a: Array, made: Array) -> bool:
        """Whether both are the same function, and both as near to its value as what mixes elements always is."""
        try:
            exact, other = ours.value, theirs.value
        except UnavailableError:
            return False
        if exact.size != a.size or other.size != a.size or not is_floating(a) or not is_floating(exact):
            return False
        exact, other = _like(exact, a), _like(other, a)
        x, y = a.astype(np.float64), made.astype(np.float64)
        usual = usual_size(exact)
        with np.errstate(all="ignore"):
            same = np.abs(exact - other) <= 2 * self.roundoff * (np.abs(exact) + usual)
            bound = self.roundoff * (_ULPS * np.abs(exact) + _MIXED * usual)
            near = (np.abs(x - exact) <= bound) & (np.abs(y - exact) <= bound)
        return bool((same & near).all())

    def _given(self, stretch: Stretch) -> dict[str, Array] | None:
        """A's values in the place of those that B's stretch reads; None where one has no partner."""
        found: dict[str, Array] = {}
        for name in stretch.cut:
            partner = self._pairs.get(name)
            theirs = self._b.value(name)
            ours = None if partner is None else self._a.value(partner[0])
            if ours is None or theirs is None:
                return None
            ours = ours.reshape(theirs.shape) if ours.shape != theirs.shape else ours
            found[name] = ours if ours.dtype == theirs.dtype else _cast(ours, theirs)
        return found

    def _made(self, stretch: Stretch, given: Mapping[str, Array], b: Array) -> Array | None:
        """What B makes of A's values; None where it cannot be run again."""
        unchanged = all(_same(given[name], self._b.value(name)) for name in stretch.cut)
        if unchanged:
            return b
        try:
            return walk(stretch.operations, given, self._b.side.evaluate)[stretch.value]
        except UnavailableError:
            return None

    def _examined(
        self, stretch: Stretch, mine: Stretch, given: Mapping[str, Array], a: Array, b: Array, made: Array
    ) -> Culprit | None:
        self.examined += 1
        held = {name: v for name in mine.cut if (v := self._a.value(name)) is not None}
        rounding = Rounding(self._b.side, stretch, given, self.roundoff)
        other = Rounding(self._a.side, mine, held, self.roundoff)
        mixed = mixes(stretch.operations) and mixes(mine.operations) and bool(mine.operations)
        if mixed and self._is_rounding(other, rounding, a, made):
            return None
        theirs = _exact(rounding, stretch, given, a)
        ours = _exact(other, mine, held, a)
        judged = judge(a, made, ours, theirs, self.roundoff, exact_form=_is_one_formula(mine, stretch))
        if ours is None and theirs is None:
            self.unjudged.append(stretch.value)
        if judged is None:
            return None
        sort, excess, bound = judged
        x, y, z = (v.astype(np.float64) for v in (a, made, b))
        index = _worst(x, y, excess, bound)
        best = ours if ours is not None else theirs
        with np.errstate(all="ignore"):
            error = np.where(_same_bad(x, y), 0.0, np.abs(x - y))
            propagated = np.where(_same_bad(z, y), 0.0, np.abs(z - y))
            finite = np.abs(x[np.isfinite(x)])
        scale = float(finite.max()) if finite.size else 0.0
        return Culprit(
            value=stretch.value,
            other_value=mine.value,
            operation=_fault(self._b, stretch, given, self.roundoff) if sort == "kernel" else stretch.operations[-1],
            stretch=stretch,
            other=mine,
            sort=sort,
            index=index,
            a=_item(a, index),
            b=_item(made, index),
            exact=None if best is None else _item(best.value.reshape(a.shape), index),
            exact_b=None if theirs is None else _item(theirs.value.reshape(a.shape), index),
            bound=float(bound[index]),
            max_abs=_greatest(error),
            max_rel=_relative(error, x),
            propagated_abs=_greatest(propagated),
            propagated_rel=float(_greatest(propagated) / scale) if scale else 0.0,
            bad=int(excess.sum()),
            total=a.size,
            given=given,
            made=made,
        )


def _exact(rounding: Rounding, stretch: Stretch, given: Mapping[str, Array], like: Array) -> Exact | None:
    if any(name not in given for name in stretch.cut) or not stretch.operations:
        return None
    try:
        found = rounding.exact()
    except UnavailableError:
        return None
    return found if found.value.size == like.size else None


def judge(
    a: Array, b: Array, ours: Exact | None, theirs: Exact | None, roundoff: float, *, exact_form: bool = False
) -> tuple[Sort, Array, Array] | None:
    """Whether two results on the same operands differ by more than rounding: why, at which elements, and the bound.

    ``ours`` and ``theirs`` are the exact values of the two stretches, None where they cannot be had. ``exact_form``: A
    has one operation for what B has a formula for. Where A is as exact as its operands are, so has B to be: that a
    formula loses more is what is wrong with it.
    """
    if a.shape != b.shape:
        return "meaning", np.ones(a.shape, bool), np.zeros(a.shape)
    if not is_floating(a) or not is_floating(b):
        return _judge_decision(a, b, *((ours, theirs) if not exact_form else (None, None)))
    x, y = a.astype(np.float64), b.astype(np.float64)
    known = [one for one in (ours, theirs) if one is not None]
    with np.errstate(all="ignore"):
        if not known:
            finite = np.abs(x[np.isfinite(x)])
            bound = np.full(x.shape, _LOST * roundoff * (float(finite.max()) if finite.size else 0.0))
            excess = _beyond(x, y, bound)
            return ("unexplained", excess, bound) if excess.any() else None
        kernel = np.max([one.kernel.reshape(x.shape) for one in known], axis=0)
        kernel = np.where(np.isnan(kernel), np.inf, kernel)
        strict = np.zeros(x.shape, bool)
        if exact_form and ours is not None:
            own = ours.kernel.reshape(x.shape)
            strict = ~_beyond(x, ours.value.reshape(x.shape), own) & np.isfinite(own)
            kernel = np.where(strict, own, kernel)
        bad = np.isfinite(x) != np.isfinite(y)
        # an infinite tolerance says only that rounding decides whether a number is finite
        bad |= np.isnan(x) != np.isnan(y)
        if bad.any() and _really_bad(bad, x, y, known):
            return "nonfinite", bad, kernel
        if ours is not None and theirs is not None:
            meaning = np.maximum(ours.meaning, theirs.meaning.reshape(ours.meaning.shape)).reshape(x.shape)
            meaning = np.where(strict, ours.meaning.reshape(x.shape), meaning)
            apart = _beyond(ours.value.reshape(x.shape), theirs.value.reshape(x.shape), meaning)
            apart |= _parts_from_stable(x, y, ours, theirs) | _parts_from_stable(y, x, theirs, ours)
            apart &= _beyond(x, y, _ULPS * roundoff * np.abs(x))
            if apart.any():
                return "meaning", apart, meaning
        excess = _beyond(x, y, kernel) & ~bad
        wrong = np.any([_beyond(v, one.value.reshape(x.shape), kernel) for one in known for v in (x, y)], axis=0)
        excess &= wrong
        return ("kernel", excess, kernel) if excess.any() else None


def _parts_from_stable(x: Array, y: Array, ours: Exact, theirs: Exact) -> Array:
    """Where one side is as exact as its operands are, and the other far from it in float64 too, however noisy that is.

    A mask that has lost its zeros adds the same huge number to all scores: rounding may make anything of their softmax,
    and still it is not the one of the side that masks.
    """
    own, exact, other = (v.reshape(x.shape) for v in (ours.kernel, ours.value, theirs.value))
    near = np.isfinite(own) & ~_beyond(x, exact, own)
    return near & _beyond(exact, other, _STABLE * own) & _beyond(x, y, _STABLE * own)


def _last_of(culprit: Culprit, ours: Array | None) -> Operation | None:
    """The last operation of a stretch that can have made what it gives from what it ought to give.

    What gives the same numbers another shape is not at fault if anything else is, nor is what moves them where they are
    not A's in another order.
    """
    operations = [one for one in culprit.stretch.operations if base(one.op) not in _RESHAPING]
    moved = ours is not None and distance(np.sort(culprit.made, axis=None), np.sort(ours, axis=None)) < SAME
    computing = [one for one in operations if base(one.op) not in _MOVING]
    return next(iter(reversed(operations if moved else computing or operations)), None)


def _draws(operation: Operation) -> bool:
    """Whether an operation draws numbers."""
    name = base(operation.op)
    return name in _RANDOM or _DROPPING in name


def _is_one_formula(mine: Stretch, theirs: Stretch) -> bool:
    """Whether one operation of A stands against few of B, none of which goes on step by step."""
    several = any(o.holds_bodies or base(o.op) in _STEPWISE for o in (*mine.operations, *theirs.operations))
    return len(mine.operations) == 1 and len(theirs.operations) <= _FORMULA and not several


def _judge_decision(a: Array, b: Array, ours: Exact | None, theirs: Exact | None) -> tuple[Sort, Array, Array] | None:
    apart = np.asarray(a != b)
    for one in (ours, theirs):
        if one is not None and one.flips is not None and one.flips.size == apart.size:
            apart = apart & ~one.flips.reshape(apart.shape)
    return ("decision", apart, np.zeros(apart.shape)) if apart.any() else None


def _really_bad(bad: Array, x: Array, y: Array, known: list[Exact]) -> bool:
    """Whether NaN or Inf of one side alone is no overflow at the end of the range, where the exact value is."""
    for one in known:
        exact = one.value.reshape(x.shape)[bad]
        if not np.isfinite(exact).all() or (np.abs(exact) < np.finfo(np.float32).max).any():
            return True
    return bool(np.isnan(x[bad]).any() or np.isnan(y[bad]).any())


def _beyond(x: Array, y: Array, bound: Array) -> Array:
    with np.errstate(all="ignore"):
        return ~((np.abs(x - y) <= bound) | _same_bad(x, y) | np.isinf(bound))


def _same_bad(x: Array, y: Array) -> Array:
    return (np.isnan(x) & np.isnan(y)) | (x == y)


def _fault(run: SideRun, stretch: Stretch, given: Mapping[str, Array], roundoff: float) -> Operation:
    """The first operation of a stretch whose own result is further from its exact value than rounding."""
    if len(stretch.operations) == 1:
        return stretch.operations[0]
    try:
        values = walk(stretch.operations, given, run.side.evaluate)
        for operation in stretch.operations:
            alone = type(stretch)(operation.outputs[0], (operation,), tuple(n for n in operation.inputs if n in values))
            exact = Rounding(run.side, alone, values, roundoff).exact()
            made = values[operation.outputs[0]]
            if is_floating(made) and _beyond(made.astype(np.float64), exact.value, exact.kernel).any():
                return operation
    except UnavailableError:
        pass
    return stretch.operations[-1]


def _worst(x: Array, y: Array, excess: Array, bound: Array) -> tuple[int, ...]:
    """The element that is furthest beyond what is tolerated; one that is bad on one side alone before all others."""
    with np.errstate(all="ignore"):
        far = np.abs(x - y) / np.maximum(bound, np.finfo(np.float64).tiny)
    far = np.where(np.isnan(far), np.inf, far)
    far = np.where(excess, far, -1.0)
    return tuple(int(n) for n in np.unravel_index(int(np.argmax(far)), x.shape))


def _item(value: Array, index: tuple[int, ...]) -> float | int | bool:
    """One element as a number of Python's."""
    found = value[index]
    return found.astype(np.float64).item() if is_floating(value) else found.item()


def _greatest(error: Array) -> float:
    """The largest of some errors; NaN where one side alone is NaN."""
    return float(error.max()) if error.size else 0.0


def _relative(error: Array, x: Array) -> float:
    with np.errstate(all="ignore"):
        found = error / np.abs(x)
    found = found[np.isfinite(found)]
    return float(found.max()) if found.size else 0.0


def _like(value: Array, other: Array) -> Array:
    """A value in the shape of another one of its size."""
    return value.reshape(other.shape) if value.shape != other.shape and value.size == other.size else value


def _same(one: Array, other: Array | None) -> bool:
    return (
        other is not None and one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def _cast(value: Array, like: Array) -> Array:
    with np.errstate(all="ignore"):
        return value.astype(like.dtype)
