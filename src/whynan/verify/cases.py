"""Cases: original and repaired on the same inputs, cut to where they differ, and the ledger over many."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from whynan.floats import format_of
from whynan.verify.arrays import (
    OtherKindError,
    Outcome,
    array_of,
    kind_of,
    outcome,
    tensor_of,
    tensors_in,
    with_tensors,
)
from whynan.verify.comparison import Standing, Truth, disputed, distances, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from whynan.verify.sampling import Sample


# -- One run of original and repaired on the same inputs, as arrays side by side ---------------------------------------


_FEW: Final = 4096
_ROUNDED: Final = 1e-4
"""By so much of itself at most may an element of a gradient be off for what the value's own rounding does to it."""
_ROUNDED_ELSEWHERE: Final = 64.0
"""In dtypes that are not the run's by so many eps: a float16 of 88 is rounded by 0.03, 3% of its exponential."""


@dataclass(frozen=True, slots=True)
class Case:
    """A sample with the gradients that come in from behind, and what the original makes of it.

    ``old`` holds an array and its dtype for every output (``0``) and every gradient (``d x``).
    """

    sample: Sample
    cotangents: tuple[Tensor | None, ...]
    old: dict[str, tuple[Any, str]]
    given: bool
    """Whether these gradients from behind are the captured ones, or ones where none were captured."""
    usual: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of each gradient, how large its elements are as a rule."""
    whole: Mapping[str, tuple[Any, str]] = field(default_factory=dict[str, tuple[Any, str]])
    """Outputs of whole numbers and truth values, as ``old`` has the others."""
    elsewhere: bool = False
    """Whether it is of another dtype than the run's."""

    def rounded(self, name: str, new: Mapping[str, Any]) -> float:
        """By how much of itself a gradient is off that comes from a value as it was rounded: exp(x - y) of that y.

        ``new`` are the arrays of the repaired.
        """
        if name.isdecimal():
            return 0.0
        eps = format_of(self.old[name][1]).eps
        values = [array for other, (old, _) in self.old.items() if other.isdecimal() for array in (old, new[other])]
        finite = [np.abs(array[np.isfinite(array)]) for array in values]
        largest = max((float(each.max()) for each in finite if each.size), default=0.0)
        return min(eps * largest, _ROUNDED_ELSEWHERE * eps if self.elsewhere else _ROUNDED)

    @property
    def fails(self) -> bool:
        """Whether the original gives a bad number."""
        return any(not np.isfinite(array).all() for array, _ in self.old.values())


def cases_of(original: Callable[..., Any], sample: Sample, seed: int) -> Iterator[Case]:
    """The sample with the captured gradients from behind, or with ones if there are none, and with random ones.

    Fresh samples have random ones alone. Raises what the original raises.
    """
    outputs = outcome(original, sample.arguments).outputs
    draw = np.random.default_rng((seed, 77))
    if not sample.needs_grad:
        yield _case(original, sample, None, given=True)
        return
    if sample.cotangent is not None and len(sample.cotangent) == len(outputs):
        yield _case(original, sample, sample.cotangent, given=True)
    elif sample.nature == "captured":
        yield _case(original, sample, tuple(torch.ones_like(o) for o in outputs), given=True)
    yield _case(original, sample, tuple(_random(o, draw) for o in outputs), given=False)


def sized(cases: Sequence[Case], dtype: str) -> list[Case]:
    """The cases, told how large gradients are in their dtype: nine of ten elements of the run's own are not larger.

    ``dtype`` is the run's.
    """
    sizes: dict[tuple[str, str], list[Any]] = {}
    for case in cases:
        if case.sample.nature != "extreme":
            for name, (old, _) in case.old.items():
                if not name.isdecimal():
                    known = np.abs(old[np.isfinite(old)])
                    sizes.setdefault((case.sample.dtype, name), []).append(known[:: known.size // _FEW + 1])
    usual: dict[str, dict[str, float]] = {}
    for (of, name), found in sizes.items():
        every = np.concatenate(found)
        usual.setdefault(of, {})[name] = float(np.quantile(every, 0.9)) if every.size else 0.0
    return [
        replace(case, usual=usual.get(case.sample.dtype, {}), elsewhere=case.sample.dtype != dtype) for case in cases
    ]


def repaired_arrays(repaired: Callable[..., Any], case: Case) -> dict[str, Any]:
    """The arrays of the repaired on the same case, by the same names; raises ``OtherKindError`` and what it raises.

    Whole numbers and truth values have to be the same where nothing is bad in the original, but at extremes, where a
    rounding may decide about them.
    """
    sample = case.sample
    run = outcome(repaired, sample.arguments, sample.needs_grad, case.cotangents if sample.needs_grad else None)
    found, wanted = {**run.arrays, **run.whole}, {**case.old, **case.whole}
    if found.keys() != wanted.keys():
        raise OtherKindError(f"{len(found)} values where the original gives {len(wanted)}")
    is_ordinary = not case.fails and sample.nature != "extreme"
    for name, (array, dtype) in wanted.items():
        new, kind = found[name]
        if kind != dtype or new.shape != array.shape:
            raise OtherKindError(f"{kind_of(kind, new.shape)} where the original gives {kind_of(dtype, array.shape)}")
        if name in case.whole and is_ordinary and (other := new != array).any():
            place = int(np.argmax(other))
            was, became = array.reshape(-1)[place], new.reshape(-1)[place]
            raise OtherKindError(
                f"{became} where the original gives {was}, in {other.sum():,} of {other.size:,} elements"
            )
    return {name: array for name, (array, _) in found.items() if name in case.old}


def is_disputed(case: Case, new: dict[str, Any]) -> bool:
    """Whether the truth has to decide about any element, or to tell why one like the run's is still bad."""
    usual = case.sample.nature != "extreme"
    return any(
        disputed(old, new[name], dtype).any() or (usual and not np.isfinite(new[name]).all())
        for name, (old, dtype) in case.old.items()
    )


def changes_healthy(case: Case, new: dict[str, Any]) -> bool:
    """Whether any element that is finite in the original is another one."""
    return any((np.isfinite(old) & disputed(old, new[name], dtype)).any() for name, (old, dtype) in case.old.items())


def at_hazard(case: Case, name: str) -> Any:
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


def _case(
    original: Callable[..., Any], sample: Sample, cotangents: tuple[Tensor | None, ...] | None, *, given: bool
) -> Case:
    found: Outcome = outcome(original, sample.arguments, sample.needs_grad, cotangents)
    return Case(sample, cotangents or (), found.arrays, given, whole=found.whole)


def _random(output: Tensor, draw: Any) -> Tensor | None:
    if not output.is_floating_point():
        return None
    return tensor_of(draw.uniform(0.5, 1.5, tuple(output.shape)) * draw.choice([-1.0, 1.0]), output)


# -- What the comparison of original and repaired came to, over many runs ----------------------------------------------


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
    in the original: finite and wrong now, bad still, and all.
    """

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
        self, case: Case, new: Mapping[str, Any], truths: Mapping[str, Truth] | None, *, strict: bool, judged: bool
    ) -> None:
        """One more run. ``strict``: every change of a value counts; else only what the truth speaks against.

        That is so of gradients in any case: they are sums, which a guard may well have autograd add in another order.

        Without truths, ``judged`` tells that it was asked for and could not be told; what it was not asked for is
        left out of the counts.
        """
        for name, (old, dtype) in case.old.items():
            truth = None if truths is None else truths.get(name)
            usual, rounded = case.usual.get(name, 0.0), case.rounded(name, new)
            found = standing(old, new[name], dtype, truth, usual=usual, rounded=rounded)
            at_all = strict and name.isdecimal()
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
            usual = worse & ~at_hazard(case, name)
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
            error = np.abs(new - right) / np.abs(right)
        error = error[known & np.isfinite(error)]
        self.off = max(self.off, float(error.max()) if error.size else 0.0)

    @property
    def moved(self) -> float:
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


# -- A large captured input cut down to the rows and columns where original and repaired differ ------------------------


# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false


_LARGE: Final = 8
"""A dimension of so many is left whole."""
_EACH: Final = 2
_KEPT: Final = (6, 7)
"""Of larger ones, so many places where the two differ are kept, and so many in all."""


def cut_down(original: Callable[..., Any], case: Case, new: Mapping[str, Any], seed: int) -> Case | None:
    """The case with few places of each large dimension, dimensions of one size alike; bad and differing ones first.

    None where the original does not take it so.
    """
    tensors = tensors_in(case.sample.arguments)
    sizes = {n for t in tensors.values() for n in t.shape if n > _LARGE}
    places = {n: _places(n, case, new) for n in sizes}
    small = {name: _taken(t, places) for name, t in tensors.items()}
    behind = case.cotangents if case.given and case.cotangents else None
    cotangent = None if behind is None else tuple(None if c is None else _taken(c, places) for c in behind)
    sample = replace(case.sample, arguments=with_tensors(case.sample.arguments, small), cotangent=cotangent)
    try:
        found = next(iter(cases_of(original, sample, seed)), None)
    except Exception:
        return None
    return found and replace(found, usual=case.usual, elsewhere=case.elsewhere)


def _places(size: int, case: Case, new: Mapping[str, Any]) -> Any:
    """Which places along dimensions of a size to keep."""
    bad, other, greatest = list[int](), list[int](), list[int]()
    for name, (old, dtype) in case.old.items():
        for found, mask in ((bad, ~np.isfinite(old)), (other, disputed(old, new[name], dtype))):
            for axis, length in enumerate(old.shape):
                if length == size:
                    there = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
                    found += there[:: max(1, len(there) // _EACH)][:_EACH].tolist()
    for tensor in tensors_in(case.sample.arguments).values():
        greatest += _outstanding(tensor, size)
    # what is bad may be so for the greatest of its row; and some that nothing is known of: what is healthy stays
    chosen = [each for of in (bad, greatest, other) for each in [*dict.fromkeys(of)][:_EACH]]
    chosen = [*[*dict.fromkeys([*chosen, *bad])][: _KEPT[0]], *range(size)]
    return np.array(sorted([*dict.fromkeys(chosen)][: _KEPT[1]]))


def _outstanding(tensor: Tensor, size: int) -> list[int]:
    """Where along a dimension of a size a tensor has its greatest and least number."""
    if not tensor.is_floating_point() or size not in tensor.shape or not tensor.numel():
        return []
    array = np.nan_to_num(array_of(tensor))
    axis = tensor.shape.index(size)
    return [int(np.unravel_index(f(array), array.shape)[axis]) for f in (np.argmax, np.argmin)]


def _taken(tensor: Tensor, places: Mapping[int, Any]) -> Tensor:
    found = tensor.detach()
    for axis, size in enumerate(tensor.shape):
        if size in places:
            found = found.index_select(axis, torch.from_numpy(places[size]).to(found.device))
    if found.is_floating_point() or found.dtype is torch.bool:
        return found
    largest = int(found.max()) if found.numel() else 0
    over = [n for n in sorted(places) if largest < n]
    return found % len(places[over[0]]) if over and largest >= len(places[over[0]]) else found
