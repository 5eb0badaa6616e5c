"""Sampled inputs, like the captured ones and unlike them, within their domain."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from whynan.floats import FORMATS, format_of
from whynan.verify.arrays import (
    array_of,
    dtype_name,
    is_complex,
    is_float,
    size_of,
    tensor_of,
    tensors_in,
    with_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.random import Generator


# -- What the values of an input were in all that was captured: the domain that fresh ones have to keep to -------------


_TELLING: Final = 16
"""Fewer values than these say nothing of a domain: four may well be positive by chance."""
_KEPT: Final = 4096
_NEAR: Final = 0.9
"""A value of either sign that comes so near to one is bounded by it; smaller ones are small by chance."""
_ROW: Final = 1e-2
"""How far from 1 a row of probabilities may sum in low precision."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Finite captured values of an input, their root mean square, and what holds for all of them; ``all`` has Inf too.

    ``low`` and ``high`` bound it, the low one itself ``excluded`` where all were greater; ``rows`` of probabilities sum
    to one along the last dimension; ``binary`` ones are a mask as numbers.
    """

    values: Any
    scale: float
    all: Any
    low: float = -np.inf
    high: float = np.inf
    excluded: bool = False
    rows: bool = False
    binary: bool = False

    def within(self, values: Any, dtype: str) -> Any:
        """Values moved into the domain, each keeping its magnitude where it can."""
        known = format_of(dtype)
        if self.low >= 0:
            values = np.abs(values)
        if self.high <= 0:
            values = -np.abs(values)
        if self.high == 1.0:
            # what is large becomes near one, as what is small is near zero
            least = -1.0 if self.low < 0 else 0.0
            size = np.maximum(np.abs(values), 1.0)
            values = np.clip(np.where(size > 1, np.sign(values) * (1 - 1 / size), values), least, 1.0)
        if self.excluded:
            values = np.where(values == 0, known.tiny, values)
        if self.rows and values.ndim:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                total = values.sum(-1, keepdims=True)
                even = np.full_like(values, 1 / max(values.shape[-1], 1))
                values = np.where((total > 0) & np.isfinite(total), values / total, even)
        return values


def domains(visits: Iterable[Mapping[str, Any]]) -> dict[str, Domain]:
    """The domain of each tensor of the captured arguments, by name."""
    arrays: dict[str, list[Any]] = {}
    for arguments in visits:
        for name, tensor in tensors_in(arguments).items():
            if is_complex(tensor):
                continue
            arrays.setdefault(name, []).append(array_of(tensor))
    return {name: _domain(found) for name, found in arrays.items()}


def _domain(arrays: list[Any]) -> Domain:
    flat = np.concatenate([a.reshape(-1) for a in arrays]).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return Domain(np.array([0.0]), 1.0, np.array([0.0]))
    with np.errstate(over="ignore"):
        scale = float(np.sqrt(np.mean(np.square(finite))))
    scale = scale if 0 < scale < np.inf else 1.0
    kept, whole = _thinned(finite), _thinned(flat[~np.isnan(flat)])
    if finite.size < _TELLING:
        return Domain(kept, scale, whole)
    low, high = float(finite.min()), float(finite.max())
    binary = set(np.unique(finite).tolist()) <= {0.0, 1.0}
    bounded = high <= 1 and (low >= 0 or (low >= -1 and max(-low, high) > _NEAR))
    return Domain(
        kept,
        scale,
        whole,
        low=0.0 if low >= 0 else -1.0 if bounded else -np.inf,
        high=1.0 if bounded and high > 0.25 else 0.0 if high <= 0 else np.inf,
        excluded=low > 0,
        rows=low >= 0 and all(_sums_to_one(a) for a in arrays),
        binary=binary and finite.size == flat.size,
    )


def _thinned(values: Any) -> Any:
    return values[:: values.size // _KEPT + 1]


def _sums_to_one(array: Any) -> bool:
    return array.ndim > 0 and array.shape[-1] > 1 and bool(np.all(np.abs(array.sum(-1) - 1) < _ROW))


# -- Inputs like the captured ones and unlike them: what a fix is judged on that it was not chosen on ------------------


Nature = Literal["captured", "own", "extreme"]
"""What a run had; what it could as well have had; what its dtype can hold."""

_DTYPES: Final = ("float32", "float16", "bfloat16", "float64")
_TURNS: Final = 3
"""So often is drawn for a program that runs in one dtype alone, as often as for three."""
_SMALL: Final = (6, 5, 4, 3, 2, 7)
"""What the different sizes of the captured tensors become, so that equal ones stay equal."""
_SMALLER: Final = (5, 4, 3, 2)
"""The same where a tensor of many dimensions still had many elements."""
_MANY: Final = 512
_GROWN: Final = 4
"""What a dimension of no or one element becomes where nothing healthy was captured."""
_MOST_GROWN: Final = 3
_NUMBERS: Final = ((1, 0.03), (3, 0.7), (1000, 50.0))
"""What a number of Python's that is 0 becomes there: a whole one, another one."""
_ENOUGH: Final = 48
"""So many elements may a captured tensor have for fresh ones to have its shape."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Arguments by name, and which of their tensors need a gradient; the dtype that most of them have.

    ``cotangent`` are the gradients that come in from behind, one for each output, where they were captured.
    """

    nature: Nature
    title: str
    dtype: str
    arguments: Mapping[str, Any]
    needs_grad: frozenset[str]
    cotangent: tuple[Any, ...] | None = None


def captured_samples(visits: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """What was captured, as samples: the key ``""`` of a visit is its cotangent, of one output or a tuple of them."""
    found: list[Sample] = []
    for visit in visits:
        arguments = {name: value for name, value in visit.items() if name}
        tensors = tensors_in(arguments)
        needs = frozenset(n for n, t in tensors.items() if getattr(t, "requires_grad", False) and is_float(t))
        behind = visit.get("")
        cotangent = None if behind is None else tuple(behind) if isinstance(behind, (tuple, list)) else (behind,)
        found.append(Sample("captured", "captured", main_dtype(tensors.values()), arguments, needs, cotangent))
    return found


def main_dtype(tensors: Any) -> str:
    """The floating-point dtype that most tensors have, the first of equals; float32 where none has one."""
    kinds = [dtype_name(t) for t in tensors if is_float(t) and dtype_name(t) in FORMATS]
    return max(dict.fromkeys(kinds), key=kinds.count) if kinds else "float32"


def judged_dtypes(main: str, possible: tuple[str, ...] = _DTYPES) -> tuple[str, ...]:
    """Three dtypes of those possible, that of the run first; that one alone where it is none of them."""
    return (main, *[d for d in possible if d != main][:2]) if main in possible else (main,)


def fresh_samples(
    captured: Sequence[Sample], seed: int, accepts: Callable[[Sample], bool], dtypes: tuple[str, ...] = _DTYPES
) -> Iterator[Sample]:
    """Fresh inputs: own ones of every dtype, then extreme ones; what the program does not accept is left out.

    Seeded, with generators of its own. Shapes are the captured ones where these are small, small ones otherwise, and
    once others than the captured.
    """
    if not captured:
        return
    main = captured[0].dtype
    limits = domains(sample.arguments for sample in captured)
    models: list[tuple[int, list[Sample]]] = []
    for turn, dtype in enumerate(judged_dtypes(main, dtypes) if dtypes else (main,) * _TURNS):
        cast = [_as_dtype(s, main, dtype) for s in (captured[0], captured[-1])]
        shapes = [s for s in (_small(cast[0], 0), _small(cast[0], 1)) if s is not None and accepts(s)]
        # a stranger's function may be of one dtype only, but never of none
        shapes = shapes or [s for s in cast[:1] if accepts(s)]
        models.append((turn if not dtypes else _DTYPES.index(dtype) if dtype in _DTYPES else 9, shapes))
    for nature, kinds in (("own", _OWN), ("extreme", _EXTREME)):
        for key, shapes in models:
            if nature == "own" and shapes:
                yield from _with_empty_rows(replace(shapes[0], nature=nature), limits, (seed, 47, key))
            for number, (title, make) in enumerate(kinds):
                if not shapes:
                    continue
                model = shapes[number % len(shapes)]
                draw = np.random.default_rng((seed, number, key))
                yield _drawn(replace(model, nature=nature), title, make, limits, draw)


def grown_samples(captured: Sequence[Sample], seed: int, accepts: Callable[[Sample], bool]) -> Iterator[Sample]:
    """Inputs that are not bound to what was captured, of the run's dtype: for where nothing healthy was.

    Dimensions of no or one element have four, if the function accepts that, values are of either sign, a mask of
    nothing or of all takes every other element, and what is a 0 of Python's is none. Numbers that are a mask stay one.
    """
    known = domains(sample.arguments for sample in captured)
    masks = {name for name, domain in known.items() if domain.binary and np.ptp(domain.values)}
    grown = [one for sample in captured[-_MOST_GROWN:] for one in _with_numbers(_grown(sample))]
    whole = [sample for sample in grown if accepts(sample)]
    for number, model in enumerate(whole or [s for s in captured[-1:] if accepts(s)]):
        for turn in range(_MOST_GROWN):
            draw = np.random.default_rng((seed, 31, number, turn))
            values = draw.standard_normal(_MOST_GROWN * 16)
            free = Domain(values, 1.0, values)
            mask = Domain(values, 1.0, values, binary=True)
            floats = [n for n, t in tensors_in(model.arguments).items() if is_float(t)]
            limits = {name: mask if name in masks else free for name in floats}
            yield _drawn(replace(model, nature="own"), "of other sizes", _ordinary, limits, draw)


def _grown(sample: Sample) -> Sample:
    large: dict[str, Any] = {}
    for name, tensor in tensors_in(sample.arguments).items():
        shape = tuple(_GROWN if n < 2 else n for n in tensor.shape)
        values = array_of(tensor)
        filled = np.resize(values, shape) if values.size else np.ones(shape)
        if dtype_name(tensor) == "bool" and filled.all() == filled.any():
            # a mask of nothing, or of all
            filled = ((np.arange(filled.size) % 2 == 0) ^ filled.any()).reshape(shape)
        large[name] = tensor_of(filled, tensor)
    return replace(sample, arguments=with_tensors(sample.arguments, large), cotangent=None)


def _is_alike(tensor: Any, values: Any) -> bool:
    """Whether several whole numbers are all one."""
    return dtype_name(tensor).startswith(("int", "uint")) and values.size > 1 and np.ptp(values) == 0


def _mixed(values: Any, draw: Generator) -> Any:
    """Whole numbers with the first few ones from 0 in some of their places."""
    other = draw.integers(0, 2 if values.any() else 3, values.shape)
    return np.where(draw.random(values.shape) < draw.random(), other, values)


def _with_numbers(sample: Sample) -> list[Sample]:
    """The sample, and where some of its arguments are 0 without being tensors the same with other numbers there."""
    zeros = {n: v for n, v in sample.arguments.items() if isinstance(v, (int, float)) and v == 0 and v is not False}
    found = [sample]
    for whole, other in _NUMBERS if zeros else ():
        numbers = {name: whole if isinstance(value, int) else other for name, value in zeros.items()}
        found.append(replace(sample, arguments={**sample.arguments, **numbers}))
    return found


def _drawn(model: Sample, title: str, make: Any, limits: Mapping[str, Domain], draw: Generator) -> Sample:
    fresh: dict[str, Any] = {}
    for name, tensor in tensors_in(model.arguments).items():
        shape, domain = tuple(tensor.shape), limits.get(name)
        if domain is None or domain.binary or not is_float(tensor):
            values = array_of(tensor).reshape(-1)[draw.permutation(size_of(tensor))].reshape(shape)
            # targets of one class alone, or all ignored, are mixed with others
            fresh[name] = tensor_of(_mixed(values, draw) if _is_alike(tensor, values) else values, tensor)
        else:
            values = make(_SampleSpec(draw, shape, dtype_name(tensor), domain))
            fresh[name] = _clip_to_dtype(domain.within(values, dtype_name(tensor)), tensor)
    return replace(model, title=title, arguments=with_tensors(model.arguments, fresh), cotangent=None)


def _with_empty_rows(model: Sample, limits: Mapping[str, Domain], seed: Sequence[int]) -> Iterator[Sample]:
    """A sample whose masks leave out all of the first row, and one whose masks leave out all of the first column."""
    drawn = _drawn(model, "with an empty row of a mask", _ordinary, limits, np.random.default_rng(seed))
    tensors = tensors_in(drawn.arguments)
    masks = {
        name: tensor
        for name, tensor in tensors.items()
        if len(tensor.shape) > 1 and (dtype_name(tensor) == "bool" or (name in limits and limits[name].binary))
    }
    for index in ((..., 0, slice(None)), (..., 0)) if masks else ():
        emptied = dict(tensors)
        for name, tensor in masks.items():
            values = array_of(tensor).copy()
            values[index] = 0
            emptied[name] = tensor_of(values, tensor)
        yield replace(drawn, arguments=with_tensors(drawn.arguments, emptied))


def _clip_to_dtype(values: Any, like: Any) -> Any:
    """Values within the range of the dtype of a tensor, which rounding may not leave."""
    largest = format_of(dtype_name(like)).max
    return tensor_of(np.where(np.isinf(values), values, np.clip(values, -largest, largest)), like)


class _SampleSpec(NamedTuple):
    """What a tensor is to be filled for: its shape, its dtype, and what its values were in the run."""

    draw: Generator
    shape: tuple[int, ...]
    dtype: str
    domain: Domain


def _perturbed(wanted: _SampleSpec) -> Any:
    chosen = wanted.draw.choice(wanted.domain.values, wanted.shape)
    chosen *= 1 + 0.1 * wanted.draw.standard_normal(wanted.shape)
    return chosen + 0.1 * _ordinary(wanted)


def _resampled(wanted: _SampleSpec) -> Any:
    return wanted.draw.choice(wanted.domain.all, wanted.shape)


def _ordinary(wanted: _SampleSpec) -> Any:
    return wanted.domain.scale * wanted.draw.standard_normal(wanted.shape)


def _sprinkled(wanted: _SampleSpec) -> Any:
    rare = wanted.draw.random(wanted.shape) < 0.15
    return np.where(rare, wanted.draw.choice(_specials(wanted.dtype), wanted.shape), _ordinary(wanted))


def _moderate(wanted: _SampleSpec) -> Any:
    return _signs(wanted.draw, wanted.shape) * 10.0 ** wanted.draw.uniform(-2, 2.5, wanted.shape)


def _far_apart(wanted: _SampleSpec) -> Any:
    return _signs(wanted.draw, wanted.shape) * 2.0 ** _exponents(wanted.draw, wanted.shape, wanted.dtype)


def _row_scaled(wanted: _SampleSpec) -> Any:
    return wanted.draw.standard_normal(wanted.shape) * 2.0 ** _exponents(
        wanted.draw, (*wanted.shape[:-1], 1) if wanted.shape else (), wanted.dtype
    )


def _scaled(wanted: _SampleSpec) -> Any:
    return wanted.draw.standard_normal(wanted.shape) * 2.0 ** _exponents(wanted.draw, (), wanted.dtype)


def _limits(wanted: _SampleSpec) -> Any:
    return np.resize(wanted.draw.permutation(_specials(wanted.dtype)), wanted.shape)


def _ties(wanted: _SampleSpec) -> Any:
    rows = wanted.draw.choice(
        np.concatenate([_specials(wanted.dtype), wanted.domain.values[:8]]),
        (*wanted.shape[:-1], 1) if wanted.shape else (),
    )
    return np.broadcast_to(rows, wanted.shape).copy()


def _near_one(wanted: _SampleSpec) -> Any:
    eps = format_of(wanted.dtype).eps
    return _signs(wanted.draw, wanted.shape) * (
        1 + _signs(wanted.draw, wanted.shape) * eps * 2.0 ** wanted.draw.integers(-1, 12, wanted.shape)
    )


_OWN: Final = (
    ("resampled", _resampled),
    *(("perturbed", _perturbed),) * 4,
    *(("ordinary", _ordinary),) * 2,
)
_EXTREME: Final = (
    *(("moderate", _moderate),) * 3,
    ("sprinkled with limits", _sprinkled),
    ("sprinkled with limits", _sprinkled),
    ("of all magnitudes", _far_apart),
    ("of all magnitudes", _far_apart),
    ("of all magnitudes by row", _row_scaled),
    ("of all magnitudes by row", _row_scaled),
    ("of one magnitude", _scaled),
    ("of one magnitude", _scaled),
    ("of one magnitude", _scaled),
    ("at the limits", _limits),
    ("tied", _ties),
    ("tied", _ties),
    ("around one", _near_one),
)


def _signs(draw: Generator, shape: tuple[int, ...]) -> Any:
    return draw.choice([-1.0, 1.0], shape)


def _exponents(draw: Generator, shape: tuple[int, ...], dtype: str) -> Any:
    known = format_of(dtype)
    return draw.uniform(known.min_exponent, np.log2(known.max), shape)


def _specials(dtype: str) -> Any:
    """Signed zeros, subnormals, the limits and their roots, one and its neighbours."""
    known = format_of(dtype)
    found = [0.0, known.smallest_subnormal, known.tiny / 4, known.tiny, known.tiny**0.5, known.eps, 0.5]
    found += [1 - known.eps / 2, 1.0, 1 + known.eps, known.max**0.5, known.max / 2, known.max]
    return np.array([sign * value for value in found for sign in (1.0, -1.0)])


def _as_dtype(sample: Sample, main: str, dtype: str) -> Sample:
    if main == dtype:
        return sample
    tensors = tensors_in(sample.arguments)
    cast = {name: tensor_of(array_of(t), t, dtype) if dtype_name(t) == main else t for name, t in tensors.items()}
    return replace(sample, dtype=dtype, arguments=with_tensors(sample.arguments, cast), cotangent=None)


def _small(sample: Sample, turn: int) -> Sample | None:
    """The sample with other sizes, equal ones alike; its own on the first turn, where they are small."""
    tensors = tensors_in(sample.arguments)
    if turn == 0 and all(size_of(t) <= _ENOUGH for t in tensors.values()):
        return sample
    sizes = sorted({n for t in tensors.values() for n in t.shape if n > 1}, reverse=True)
    if not sizes or len(sizes) > len(_SMALL):
        return None
    few = dict(zip(sizes, _SMALL if turn == 0 else (_SMALL[-1], *_SMALL), strict=False)) | {0: 0, 1: 1}
    if len(sizes) < len(_SMALLER) and max(math.prod(few[n] for n in t.shape) for t in tensors.values()) > _MANY:
        few |= dict(zip(sizes, _SMALLER[turn:], strict=False))
    small: dict[str, Any] = {}
    for name, tensor in tensors.items():
        shape = tuple(few[n] for n in tensor.shape)
        values = np.resize(array_of(tensor), shape)
        if not (is_float(tensor) or is_complex(tensor) or dtype_name(tensor) == "bool"):
            over = [n for n in sizes if values.size and values.max() < n]
            values = values % few[over[-1]] if over else values
        small[name] = tensor_of(values, tensor)
    return replace(sample, arguments=with_tensors(sample.arguments, small), cotangent=None)
