"""One run of original and repaired on the same inputs, as arrays side by side."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from whynan.floats import format_of
from whynan.verify.comparing import disputed
from whynan.verify.tensors import OtherKindError, Outcome, kind_of, outcome, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from whynan.verify.samples import Sample

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
