"""Counts of a run's values, and the masks of bad elements, for every dtype of NumPy's and ml_dtypes'."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whynan.capture.onnx.statistics import CHUNK, ScanCounts, counters, merge_counts, scan_each, scan_elements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from whynan.capture.onnx.execution import Counters, Tensor, Value
    from whynan.records.base import Number


# -- Counting the values of a run: each array once, and all that there are at a time beside each other -----------------


_WORTHWHILE: Final = 1 << 10
"""Elements from which on it is worth while to know that they have been counted."""
_SHARED: Final = 1 << 19
"""Elements from which on it is worth while to have another thread."""
_MOST: Final = 4
"""Threads at most: more would wait for each other."""


class Counts:
    """Counts the values of a run, an array that is looked at under several names only once; it must not be changed."""

    def __init__(self, threads: int | None = None) -> None:
        """``threads``: how many count at the same time, by default as many as there are cores, 4 at most."""
        self._known: dict[int, tuple[weakref.ref[Any], Counters]] = {}
        self._threads = min(_MOST, _cores()) if threads is None else threads

    def __call__(self, value: Value) -> Counters:
        """As ``counters``."""
        known = self._known.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        found = counters(value)
        if found.n >= _WORTHWHILE:
            self._learn(value, found)
        return found

    def ahead(self, values: Iterable[Value]) -> None:
        """Count all values that are large, as far as they are not known yet, before they are asked for."""
        large = {id(value): value for value in values if _is_large(value)}
        if not large or self._threads == 1:
            return
        arrays: list[tuple[Any, Tensor]] = [
            (value, np.ascontiguousarray(value).reshape(-1))
            for key, value in large.items()
            if (known := self._known.get(key)) is None or known[0]() is not value
        ]
        if sum(flat.size for _, flat in arrays) < _SHARED:
            return
        parts = self._looked([flat for _, flat in arrays])
        for (value, flat), found in zip(arrays, parts, strict=True):
            self._learn(value, merge_counts(flat, found, tuple(value.shape)))

    def _learn(self, value: Any, found: Counters) -> None:
        # of an array that is gone only its place is left, which the next one may take
        self._known[id(value)] = weakref.ref(value), found

    def _looked(self, arrays: list[Tensor]) -> list[list[ScanCounts]]:
        """What there is in each array, part by part, in no order; every thread takes the next part that is left."""
        found: list[list[ScanCounts]] = [[] for _ in arrays]
        left = deque(_parts(arrays))

        def look() -> None:
            flags = _flags()
            while left:
                try:
                    part = left.popleft()
                except IndexError:
                    return
                if isinstance(part, _Some):
                    for i, each in zip(part.arrays, scan_each(part.whole, part.bounds, flags), strict=True):
                        found[i].append(each)
                else:
                    found[part[0]].append(scan_elements(arrays[part[0]], part[1], flags))

        others = [_pool(self._threads - 1).submit(look) for _ in range(self._threads - 1)]
        look()
        for other in others:
            other.result()
        return found


class _Some(NamedTuple):
    """Several small arrays that lie one after another in ``whole``, each between two bounds of it."""

    arrays: list[int]
    whole: Tensor
    bounds: list[tuple[int, int]]


def _parts(arrays: Sequence[Tensor]) -> Iterator[_Some | tuple[int, int]]:
    """What is looked at in one go: so much of a large array, or several small ones that lie side by side."""
    run: list[tuple[int, int]] = []
    for i, flat in enumerate(arrays):
        if flat.size > CHUNK:
            yield from ((i, begin) for begin in range(0, flat.size, CHUNK))
            continue
        begin = int(flat.__array_interface__["data"][0])
        if run and not _follows(arrays, run, flat, begin):
            yield _together(arrays, run)
            run = []
        run.append((i, begin))
    if run:
        yield _together(arrays, run)


def _follows(arrays: Sequence[Tensor], run: Sequence[tuple[int, int]], flat: Tensor, begin: int) -> bool:
    """Whether an array lies behind some others in the same memory, and is to be looked at with them."""
    (i, first), (j, last) = run[0], run[-1]
    if flat.base is None or flat.base is not arrays[i].base or flat.dtype != arrays[i].dtype:
        return False
    return last + arrays[j].nbytes <= begin and begin + flat.nbytes - first <= CHUNK * flat.itemsize


def _together(arrays: Sequence[Tensor], run: Sequence[tuple[int, int]]) -> _Some | tuple[int, int]:
    """Some arrays, each with its address, as one; a single one as it is."""
    i, first = run[0]
    if len(run) == 1:
        return i, 0
    size = arrays[i].itemsize
    bounds = [((begin - first) // size, (begin - first) // size + arrays[j].size) for j, begin in run]
    whole = np.lib.stride_tricks.as_strided(arrays[i], (bounds[-1][1],), (size,), writeable=False)
    return _Some([j for j, _ in run], whole, bounds)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: to start one takes as long as to count a value."""
    return ThreadPoolExecutor(threads, "whynan-counts")


_OWN: Final = threading.local()


def _flags() -> Tensor:
    """A thread's own room for truth values."""
    if not hasattr(_OWN, "flags"):
        _OWN.flags = np.empty(CHUNK, np.bool_)
    return _OWN.flags


def _is_large(value: Any) -> bool:
    """Whether a value is a tensor of many floating-point numbers that is read as it lies."""
    held: Any = value
    return isinstance(value, np.ndarray) and held.size >= _WORTHWHILE and held.dtype.char in "fd"


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- Which elements of a tensor are bad, of every dtype of NumPy's and ml_dtypes'; and the tensors within a value ------


Mask: TypeAlias = NDArray[np.bool_]
Key: TypeAlias = tuple[int, ...]
"""Which operand or output, and where within a sequence."""

_EXPONENTS: Final = {"float16": np.uint16(0x7C00), "bfloat16": np.uint16(0x7F80)}
"""Of two bytes: the bits that are all set in what is no number."""
_NAMES: Final = {"object": "string", "str": "string"}


def dtype_name(dtype: Any) -> str:
    """``float32``, ``bfloat16``, ``string``."""
    found = np.dtype(dtype)
    return "string" if found.kind in "OUS" else _NAMES.get(found.name, found.name)


def is_array(value: Any) -> bool:
    """Whether a value is a tensor of numbers, a scalar of NumPy's included."""
    kind: np.dtype[Any] | None = getattr(value, "dtype", None)
    return isinstance(kind, np.dtype) and kind.kind not in "OUS"


def is_floating(value: Any) -> bool:
    """Whether a value is a tensor that can hold a bad number."""
    if not is_array(value):
        return False
    kind: np.dtype[Any] = value.dtype
    return kind.kind in "fc" or kind.name.startswith(("float", "bfloat"))


def bad_mask(tensor: Tensor) -> Mask:
    """Which elements are NaN or infinite."""
    finite = np.asarray(np.isfinite(tensor))
    return np.logical_not(finite, out=finite)


def nan_mask(tensor: Tensor) -> Mask:
    """Which elements are NaN."""
    return np.asarray(np.isnan(tensor))


def is_bad(tensor: Tensor) -> bool:
    """Whether a floating tensor holds a NaN or an Inf."""
    if not tensor.size:
        return False
    if tensor.dtype.char in "fd":
        # least and greatest carry a NaN, and are faster than a mask of all elements
        return not (np.isfinite(tensor.min()) and np.isfinite(tensor.max()))
    exponent = _EXPONENTS.get(tensor.dtype.name)
    if exponent is not None:
        return bool(((tensor.view(np.uint16) & exponent) == exponent).any())
    return not bool(np.isfinite(tensor).all())


def constant_like(tensor: Tensor, number: float) -> Tensor:
    """A number as a tensor without dimensions, of the dtype of another."""
    return np.asarray(number).astype(tensor.dtype)


def tensors(value: Value, key: Key) -> Iterator[tuple[Key, Tensor]]:
    """Every tensor of numbers of a value, through sequences, with its key."""
    if isinstance(value, list):
        for i, part in enumerate(value):
            yield from tensors(part, (*key, i))
    elif is_array(value):
        yield key, np.asarray(value)


def map_tensors(value: Value, key: Key, function: Callable[[Key, Tensor], Tensor]) -> Value:
    """A value of which each tensor is replaced."""
    if isinstance(value, list):
        return [map_tensors(part, (*key, i), function) for i, part in enumerate(value)]
    return function(key, np.asarray(value)) if is_array(value) else value


def first_index(mask: Mask) -> tuple[int, ...] | None:
    """The first true element in row-major order."""
    if not mask.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask.reshape(-1))), mask.shape))


def number(value: Any) -> Number | bool | str:
    """An element as a number of Python's; a complex one as text."""
    kind: np.dtype[Any] = np.asarray(value).dtype
    if kind.kind == "b":
        return bool(value)
    if kind.kind == "c":
        plain = complex(value)
        return f"{plain.real:g}{plain.imag:+g}j"
    return int(value) if "int" in kind.name else float(value)


def value_at(tensor: Tensor, index: tuple[int, ...]) -> Number | bool | str:
    """The value of one element."""
    return number(tensor[index])


def finite_range(region: Tensor) -> tuple[Number | None, Number | None]:
    """Least and greatest of a region, what is NaN left aside; NaN where it holds nothing else."""
    if not region.size or region.dtype.kind in "cb" or not is_array(region):
        return None, None
    flat = region.reshape(-1)
    if is_floating(flat):
        flat = flat.astype(np.float64)
        known = flat[~np.isnan(flat)]
        if not known.size:
            return float("nan"), float("nan")
        return float(known.min()), float(known.max())
    wide = flat.astype(np.int64) if flat.dtype.kind == "V" else flat
    return int(wide.min()), int(wide.max())
