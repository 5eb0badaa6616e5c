"""Cases: original and repaired on the same inputs, cut down to where they differ."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from whynan.floats import format_of
from whynan.verify.arrays import (
    OtherKindError,
    array_of,
    dtype_name,
    is_float,
    kind_of,
    size_of,
    tensor_of,
    tensors_in,
    with_tensors,
)
from whynan.verify.comparison import disputed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from whynan.verify.arrays import Outcome
    from whynan.verify.oracle.calls import Program
    from whynan.verify.sampling import Sample


class TestedProgram(Protocol):
    """A program under test: a function of tensors, or a part of a graph; original or repaired."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that it can run in; none where that of the run is the only one."""
        ...

    def run(
        self,
        arguments: Mapping[str, Any],
        needs_grad: frozenset[str] = frozenset(),
        cotangents: Sequence[Any] | None = None,
    ) -> Outcome:
        """What it gives for some arguments, and their gradients; raises what it raises."""
        ...

    def oracle_program(self, arguments: Mapping[str, Any], needs_grad: frozenset[str] = frozenset()) -> Program:
        """What it computes for these arguments, step by step, for the oracle; raises ``UnknowableError``."""
        ...

    def first_overflow(self, arguments: Mapping[str, Any], *, scaling: bool) -> tuple[str, Any] | None:
        """The first operator that makes Inf of finite operands, and what it gives; None where that is not known."""
        ...

    def shrink_case(self, case: Case, new: Mapping[str, Any], seed: int) -> Case | None:
        """A large case cut down to some of the elements in question; None where that cannot be done."""
        ...


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
    cotangents: tuple[Any, ...]
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

        ``new`` are the arrays of the repaired. No more than is forgiven of one that was healthy.
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


def cases_of(original: TestedProgram, sample: Sample, seed: int) -> Iterator[Case]:
    """The sample with the captured gradients from behind, or with ones if there are none, and with random ones.

    Fresh samples have random ones alone. Raises what the original raises.
    """
    if not sample.needs_grad:
        yield _case(original, sample, None, given=True)
        return
    outputs = original.run(sample.arguments).outputs
    draw = np.random.default_rng((seed, 77))
    if sample.cotangent is not None and len(sample.cotangent) == len(outputs):
        yield _case(original, sample, sample.cotangent, given=True)
    elif sample.nature == "captured":
        yield _case(original, sample, tuple(tensor_of(np.ones(tuple(o.shape)), o) for o in outputs), given=True)
    yield _case(original, sample, tuple(_random(o, draw) for o in outputs), given=False)


def with_gradient_scale(cases: Sequence[Case], dtype: str) -> list[Case]:
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


def repaired_arrays(repaired: TestedProgram, case: Case, *, widens: bool = False) -> dict[str, Any]:
    """The arrays of the repaired on the same case, by the same names; raises ``OtherKindError`` and what it raises.

    Whole numbers and truth values have to be the same where nothing is bad in the original, but at extremes, where a
    rounding may decide about them. What ``widens`` may give float32 in place of a half format.
    """
    sample = case.sample
    run = repaired.run(sample.arguments, sample.needs_grad, case.cotangents if sample.needs_grad else None)
    found, wanted = {**run.arrays, **run.whole}, {**case.old, **case.whole}
    if found.keys() != wanted.keys():
        raise OtherKindError(f"{len(found)} values where the original gives {len(wanted)}")
    is_ordinary = not case.fails and sample.nature != "extreme"
    for name, (array, dtype) in wanted.items():
        new, kind = found[name]
        kind = dtype if widens and kind == "float32" and name in case.old else kind
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


def _case(original: TestedProgram, sample: Sample, cotangents: tuple[Any, ...] | None, *, given: bool) -> Case:
    found = original.run(sample.arguments, sample.needs_grad, cotangents)
    return Case(sample, cotangents or (), found.arrays, given, whole=found.whole)


def _random(output: Any, draw: Any) -> Any:
    if not is_float(output):
        return None
    return tensor_of(draw.uniform(0.5, 1.5, tuple(output.shape)) * draw.choice([-1.0, 1.0]), output)


# -- A large captured input cut down to the rows and columns where original and repaired differ ------------------------


_LARGE: Final = 8
"""A dimension of so many is left whole."""
_EACH: Final = 2
_KEPT: Final = (6, 7)
"""Of larger ones, so many places where the two differ are kept, and so many in all."""


def shrink_dimensions(original: TestedProgram, case: Case, new: Mapping[str, Any], seed: int) -> Case | None:
    """The case with few places of each large dimension, dimensions of one size alike; bad and differing ones first.

    Where it does not fail any more, one size is left whole: a program may split its rows at a number that it is given.
    None where the original does not take it so.
    """
    tensors = tensors_in(case.sample.arguments)
    sizes = {n for t in tensors.values() for n in t.shape if n > _LARGE}
    places = {n: _places(n, case, new) for n in sizes}
    first: Case | None = None
    for whole in (None, *sorted(sizes)) if len(sizes) > 1 else (None,):
        found = _cut(original, case, {n: kept for n, kept in places.items() if n != whole}, seed)
        if found is not None and (found.fails or not case.fails):
            return found
        first = first or found
    return first


def _cut(original: TestedProgram, case: Case, places: Mapping[int, Any], seed: int) -> Case | None:
    """The case with some places of the dimensions of each size."""
    tensors = tensors_in(case.sample.arguments)
    small = {name: _select_places(t, places) for name, t in tensors.items()}
    behind = case.cotangents if case.given and case.cotangents else None
    cotangent = None if behind is None else tuple(None if c is None else _select_places(c, places) for c in behind)
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
        greatest += _extreme_places(tensor, size)
    # what is bad may be so for the greatest of its row; and some that nothing is known of: what is healthy stays
    chosen = [each for of in (bad, greatest, other) for each in [*dict.fromkeys(of)][:_EACH]]
    chosen = [*[*dict.fromkeys([*chosen, *bad])][: _KEPT[0]], *range(size)]
    return np.array(sorted([*dict.fromkeys(chosen)][: _KEPT[1]]))


def _extreme_places(tensor: Any, size: int) -> list[int]:
    """Where along a dimension of a size a tensor has its greatest and least number."""
    if not is_float(tensor) or size not in tensor.shape or not size_of(tensor):
        return []
    array: Any = np.nan_to_num(array_of(tensor))
    axis = tensor.shape.index(size)
    return [int(np.unravel_index(int(f(array)), array.shape)[axis]) for f in (np.argmax, np.argmin)]


def _select_places(tensor: Any, places: Mapping[int, Any]) -> Any:
    found = array_of(tensor)
    for axis, size in enumerate(tensor.shape):
        if size in places:
            found = found.take(places[size], axis)
    if not (is_float(tensor) or dtype_name(tensor) == "bool"):
        largest = int(found.max()) if found.size else 0
        over = [n for n in sorted(places) if largest < n]
        found = found % len(places[over[0]]) if over and largest >= len(places[over[0]]) else found
    return tensor_of(found, tensor)
