"""Counters and finite range of one value of an ONNX model, for every dtype that a model can hold."""

# pyright: strict

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from whynan.capture.onnx.execution import Counters
from whynan.errors import UsageError
from whynan.floats import format_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from whynan.capture.onnx.execution import Tensor, Value

_CHUNK: Final = 1 << 17
"""Elements looked at in one go: what was read for the minimum is still in the cache for the rest."""
_WORTHWHILE: Final = 1 << 13
"""Elements from which on another thread is worth its while."""
_FP4_TINY: Final = 1.0
_AHEAD: Final[dict[int, Future[Counters]]] = {}
"""By identity, the arrays that are counted on other threads while earlier ones are looked at."""


def counters(value: Value) -> Counters:
    """Exact counts of special values, and least and greatest of the finite elements.

    A complex element counts as its two parts, and has no range. No counter is inferred from a minimum or maximum.
    """
    begun = _AHEAD.get(id(value))
    # what no other thread has come to is counted here rather than waited for
    return _counted(value) if begun is None or begun.cancel() else begun.result()


@contextmanager
def counted_ahead(values: Iterable[Tensor], threads: int) -> Generator[None]:
    """Count these arrays on other threads: within, ``counters`` of one of them waits for what has begun already.

    The arrays must not change meanwhile, and must be kept by the caller.
    """
    large = [value for value in values if value.size >= _WORTHWHILE] if threads > 1 else []
    if not large:
        yield
        return
    pool = _pool(threads - 1)
    # from the last on: the caller begins with the first
    begun = {id(value): pool.submit(_counted, value) for value in reversed(large)}
    _AHEAD.update(begun)
    try:
        yield
    finally:
        for identity, future in begun.items():
            _AHEAD.pop(identity, None)
            # an array that is being counted must outlast that
            if not future.cancel():
                wait([future])


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "whynan-counting")


def _counted(value: Value) -> Counters:
    if value is None:
        return Counters("none", (), 0)
    if isinstance(value, list):
        return Counters("sequence", (len(value),), 0)
    # NumPy's own functions for what may be a scalar or a list of strings
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind in "OUST":
        return Counters("string", array.shape, 0)
    name = array.dtype.name
    if array.size == 0:
        return Counters(name, array.shape, 0)
    if kind == "c":
        parts = _floats(array.reshape(-1).view(np.float32 if array.dtype.itemsize == 8 else np.float64))
        return Counters(name, array.shape, **_without_range(parts))
    if kind in "iub":
        return Counters(name, array.shape, **_integers(array))
    if array.dtype.itemsize == 1:
        return Counters(name, array.shape, **_few_values(array))
    flat = array.reshape(-1)
    found = _halves(flat) if array.dtype.itemsize == 2 else _floats(flat)
    return Counters(name, array.shape, **found)


def _without_range(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "finite_min": None, "finite_max": None}


def _integers(array: Tensor) -> dict[str, Any]:
    """Whole numbers and truth values: never bad."""
    n = array.size
    return {
        "n": n,
        "n_zero": n - int(np.count_nonzero(array)),
        "finite_min": int(array.min()),
        "finite_max": int(array.max()),
    }


def _floats(flat: Tensor) -> dict[str, Any]:
    """The counters of floating-point numbers of four bytes or more.

    NumPy's minimum and maximum carry NaN and infinity, so that two finite ends prove that all elements are.
    """
    tiny = flat.dtype.type(_tiny(flat.dtype))
    lows: list[Any] = []
    highs: list[Any] = []
    small = zero = 0
    with np.errstate(all="ignore"):
        room = np.empty(min(_CHUNK, flat.size), flat.dtype)
        flags = np.empty(room.size, np.bool_)
        for begin in range(0, flat.size, _CHUNK):
            part = flat[begin : begin + _CHUNK]
            low, high = np.minimum.reduce(part), np.maximum.reduce(part)
            lows.append(low)
            highs.append(high)
            # all in one sign, and far from 0: nothing small to count
            if not (low >= tiny or high <= -tiny):
                here = _small(part, low, tiny, room[: part.size], flags[: part.size])
                small, zero = small + here[0], zero + here[1]
        low, high = (lows[0], highs[0]) if len(lows) == 1 else (np.min(lows), np.max(highs))
    counts = {"n": flat.size, "n_zero": zero, "n_subnormal": small - zero}
    if np.isfinite(low) and np.isfinite(high):
        return {**counts, "finite_min": float(low), "finite_max": float(high)}
    return {**counts, **_bad(flat)}


def _small(part: Tensor, low: Any, tiny: Any, room: Tensor, flags: NDArray[np.bool_]) -> tuple[int, int]:
    """How many elements are less than the smallest normal number, and how many of these are 0."""
    magnitudes = part
    if not low >= 0:
        magnitudes = np.absolute(part, out=room)
        # as a rule nothing is small, and a minimum is found faster than elements are counted; NaN is no minimum
        if np.minimum.reduce(magnitudes) >= tiny:
            return 0, 0
    np.less(magnitudes, tiny, out=flags)
    small = int(np.count_nonzero(flags))
    if small == 0:
        return 0, 0
    np.equal(magnitudes, 0, out=flags)
    return small, int(np.count_nonzero(flags))


def _bad(flat: Tensor) -> dict[str, Any]:
    """The counts of what is not finite, and the range of what is."""
    nan = int(np.count_nonzero(np.isnan(flat)))
    infinite = np.isinf(flat)
    positive = int(np.count_nonzero(flat[infinite] > 0))
    counts: dict[str, Any] = {
        "n_nan": nan,
        "n_posinf": positive,
        "n_neginf": int(np.count_nonzero(infinite)) - positive,
    }
    finite = flat[np.isfinite(flat)]
    if finite.size:
        counts["finite_min"], counts["finite_max"] = float(finite.min()), float(finite.max())
    return counts


def _halves(flat: Tensor) -> dict[str, Any]:
    """The counters of float16 and bfloat16, by their bits: as numbers they are compared a hundred times slower.

    Seen as an integer whose lower bits are turned over where the sign is set, a float keeps its order.
    """
    bits = np.ascontiguousarray(flat).view(np.int16)
    infinity = int(np.array(np.inf, flat.dtype).view(np.int16))
    tiny = int(np.array(_tiny(flat.dtype), flat.dtype).view(np.int16))
    least, most = infinity, ~infinity
    finite: tuple[int, int] | None = None
    nan = posinf = neginf = zero = subnormal = 0
    for begin in range(0, bits.size, _CHUNK):
        part = bits[begin : begin + _CHUNK]
        keys = part >> 15
        keys &= 0x7FFF
        keys ^= part
        low, high = int(keys.min()), int(keys.max())
        if low < tiny and high > ~tiny:
            within = keys[(keys < tiny) & (keys > ~tiny)]
            zero_here = int(np.count_nonzero((within == 0) | (within == -1)))
            zero, subnormal = zero + zero_here, subnormal + within.size - zero_here
        if low <= ~infinity or high >= infinity:
            posinf += int(np.count_nonzero(keys == infinity))
            neginf += int(np.count_nonzero(keys == ~infinity))
            rest = keys[(keys < infinity) & (keys > ~infinity)]
            nan += int(np.count_nonzero((keys > infinity) | (keys < ~infinity)))
            if rest.size == 0:
                continue
            low, high = int(rest.min()), int(rest.max())
        least, most = min(least, low), max(most, high)
        finite = least, most
    counts: dict[str, Any] = {
        "n": flat.size,
        "n_nan": nan,
        "n_posinf": posinf,
        "n_neginf": neginf,
        "n_zero": zero,
        "n_subnormal": subnormal,
    }
    if finite is not None:
        counts["finite_min"], counts["finite_max"] = (_of_key(key, flat.dtype) for key in finite)
    return counts


def _of_key(key: int, dtype: np.dtype[Any]) -> float:
    """The number that an ordered integer stands for."""
    bits = key if key >= 0 else key ^ 0x7FFF
    return float(np.array(bits, np.int16).view(dtype))


def _few_values(array: Tensor) -> dict[str, Any]:
    """The counters of a format that has 256 codes at most: how often each code occurs says all."""
    codes = np.bincount(np.ascontiguousarray(array).reshape(-1).view(np.uint8), minlength=256)
    # ml_dtypes keeps one element of four bits or two in a byte: codes that are not its own do not occur
    numbers = np.arange(256, dtype=np.uint8).view(array.dtype).astype(np.float64)
    magnitudes = np.abs(numbers)
    tiny = _tiny(array.dtype)

    def count(where: NDArray[np.bool_]) -> int:
        return int(codes[where].sum())

    zero = count(numbers == 0)
    counts: dict[str, Any] = {
        "n": array.size,
        "n_nan": count(np.isnan(numbers)),
        "n_posinf": count(numbers == np.inf),
        "n_neginf": count(numbers == -np.inf),
        "n_zero": zero,
        "n_subnormal": count((magnitudes < tiny) & (numbers != 0)),
    }
    finite = numbers[(codes > 0) & np.isfinite(numbers)]
    if finite.size:
        counts["finite_min"], counts["finite_max"] = float(finite.min()), float(finite.max())
        if array.dtype.name in _WHOLE:
            counts |= {end: int(counts[end]) for end in ("finite_min", "finite_max")}
    return counts


_WHOLE: Final = frozenset(("int2", "uint2", "int4", "uint4"))


@cache
def _tiny(dtype: np.dtype[Any]) -> float:
    """The smallest normal number of a dtype; 0 where nothing of it is subnormal."""
    if dtype.name in _WHOLE:
        return 0.0
    if dtype.name == "float4_e2m1fn":
        return _FP4_TINY
    try:
        known = format_of(dtype.name)
    except UsageError:
        return float(cast("Any", np.finfo(dtype)).smallest_normal)
    return known.tiny if known.has_subnormals else 0.0
