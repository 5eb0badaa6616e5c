"""Counters, finite range and digest of one value of an ONNX model, for every dtype that a model can have."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from whynan.capture.onnx.execution import Counters
from whynan.errors import UsageError
from whynan.floats import format_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from whynan.capture.onnx.execution import Tensor, Value


# -- Counters and finite range of one value of an ONNX model, for every dtype that a model can hold --------------------


CHUNK: Final = 1 << 18
"""Elements looked at in one go: what was read for the minimum is still in the cache for the rest."""
_FP4_TINY: Final = 1.0


def counters(value: Value) -> Counters:
    """Exact counts of special values, and least and greatest of the finite elements.

    A complex element counts as its two parts, and has no range. No counter is inferred from a minimum or maximum.
    """
    if value is None:
        return Counters("none", (), 0)
    if isinstance(value, list):
        return Counters("sequence", (len(value),), 0)
    # NumPy's own function, for it may be a scalar or a list of strings
    array = np.asarray(value)
    shape = array.shape
    kind = array.dtype.kind
    if kind in "OUST":
        return Counters("string", shape, 0)
    name = _name(array.dtype)
    if array.size == 0:
        return Counters(name, shape, 0)
    if kind == "c":
        found = _floats(array.reshape(-1).view(np.float32 if array.dtype.itemsize == 8 else np.float64), shape)
        return dataclasses.replace(found, dtype=name, finite_min=None, finite_max=None)
    if kind in "iub":
        return Counters(name, shape, **_integers(array))
    if array.dtype.itemsize == 1:
        return Counters(name, shape, **_few_values(array))
    flat = array.reshape(-1)
    return Counters(name, shape, **_halves(flat)) if array.dtype.itemsize == 2 else _floats(flat, shape)


@cache
def _name(dtype: np.dtype[Any]) -> str:
    # NumPy makes it anew each time
    return dtype.name


def _integers(array: Tensor) -> dict[str, Any]:
    """Whole numbers and truth values: never bad."""
    n = array.size
    return {
        "n": n,
        "n_zero": n - int(np.count_nonzero(array)),
        "finite_min": int(array.min()),
        "finite_max": int(array.max()),
    }


def _floats(flat: Tensor, shape: tuple[int, ...]) -> Counters:
    """The counters of floating-point numbers of four bytes or more, by their bits."""
    flat = np.ascontiguousarray(flat)
    return merge_counts(flat, [scan_elements(flat, begin) for begin in range(0, flat.size, CHUNK)], shape)


class ScanCounts(NamedTuple):
    """What there is in some elements: least and greatest as places in the order of all numbers, and the counts."""

    least: int
    most: int
    finite: bool
    small: int
    """Elements nearer to 0 than any normal number, and so it itself."""
    zero: int


def scan_elements(flat: Tensor, begin: int, flags: Tensor | None = None) -> ScanCounts:
    """The elements from ``begin`` on, as many as are looked at in one go; ``flags`` is room for as many truth values.

    Seen as an integer a float keeps its order where its sign is not set, and has the contrary order where it is. So the
    extremes of the same bits with and without a sign are the greatest and the smallest magnitudes of either sign, which
    tell what is not finite and what is nearer to 0 than a normal number, without an array in between.
    """
    form = _bits(flat.dtype)
    numbers = flat[begin : begin + CHUNK]
    part, bits = numbers.view(form.signed), numbers.view(form.unsigned)
    low, high = int(np.minimum.reduce(part)), int(np.maximum.reduce(part))
    if low >= 0:
        return _told(form, part, low, high, low, high, flags)
    return _told(form, part, low, high, int(np.minimum.reduce(bits)), int(np.maximum.reduce(bits)), flags)


def scan_each(flat: Tensor, bounds: Sequence[tuple[int, int]], flags: Tensor | None = None) -> list[ScanCounts]:
    """As ``looked``, of several arrays that lie one after another in one, each between two bounds."""
    form = _bits(flat.dtype)
    part, bits = flat.view(form.signed), flat.view(form.unsigned)
    places = [place for pair in bounds for place in pair]
    # what is between two of them is looked at as well, and left aside
    at = np.array(places if places[-1] < flat.size else places[:-1])
    lows: list[int]
    highs: list[int]
    lows, highs = np.minimum.reduceat(part, at)[::2].tolist(), np.maximum.reduceat(part, at)[::2].tolist()
    first, last = lows, highs
    if min(lows) < 0:
        first, last = np.minimum.reduceat(bits, at)[::2].tolist(), np.maximum.reduceat(bits, at)[::2].tolist()
    return [
        _told(form, part[begin:end], lows[i], highs[i], first[i], last[i], flags)
        for i, (begin, end) in enumerate(bounds)
    ]


def _told(form: _Bits, part: Tensor, low: int, high: int, first: int, last: int, flags: Tensor | None) -> ScanCounts:
    """What the extremes tell of some numbers: ``first`` and ``last`` are those of the bits without a sign."""
    near, far, least, most = low, high, low, high
    if low < 0:
        # of the negative ones: the nearest to 0, and the furthest from it
        near, far = low & form.magnitude, last & form.magnitude
        least, most = ~far, ~near
        if high >= 0:
            near, far, most = min(near, first), max(far, high), high
    small = zero = 0
    if near < form.tiny:
        if low < 0:
            small, zero = _near(np.left_shift(part.view(form.unsigned), 1), form.tiny << 1, flags)
        else:
            small, zero = _near(part, form.tiny, flags)
    return ScanCounts(least, most, far < form.infinity, small, zero)


def _near(magnitudes: Tensor, limit: int, flags: Tensor | None) -> tuple[int, int]:
    """How many whole numbers are below a limit, and how many are 0; none is below that."""
    found = np.less(magnitudes, limit, out=None if flags is None else flags[: magnitudes.size])
    small = int(np.count_nonzero(found))
    return small, int(np.count_nonzero(np.equal(magnitudes, 0, out=found)))


def merge_counts(flat: Tensor, parts: Sequence[ScanCounts], shape: tuple[int, ...]) -> Counters:
    """The counters of a value of this shape from what there is in all parts of its elements."""
    least, most, finite, small, zero = parts[0]
    for part in parts[1:]:
        least, most, finite = min(least, part.least), max(most, part.most), finite and part.finite
        small, zero = small + part.small, zero + part.zero
    name, number_at = _name(flat.dtype), _bits(flat.dtype).number_at
    if finite:
        return Counters(name, shape, flat.size, 0, 0, 0, zero, small - zero, number_at(least), number_at(most))
    return Counters(name, shape, flat.size, n_zero=zero, n_subnormal=small - zero, **_bad(flat))


class _Bits(NamedTuple):
    """A floating-point format as whole numbers of the same size."""

    signed: np.dtype[Any]
    unsigned: np.dtype[Any]
    whole: str
    number: str
    magnitude: int
    infinity: int
    tiny: int

    def number_at(self, place: int) -> float:
        """The number at a place in the order of all: a negative one is the complement of its magnitude."""
        found: float = struct.unpack(self.number, struct.pack(self.whole, place if place >= 0 else ~place))[0]
        return found if place >= 0 else -found


@cache
def _bits(dtype: np.dtype[Any]) -> _Bits:
    size = dtype.itemsize
    signed = np.dtype(f"i{size}")
    ends = np.array([np.inf, _tiny(dtype)], dtype).view(signed)
    names = ("=I", "=f") if size == 4 else ("=Q", "=d")
    return _Bits(signed, np.dtype(f"u{size}"), *names, (1 << (size * 8 - 1)) - 1, int(ends[0]), int(ends[1]))


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
    for begin in range(0, bits.size, CHUNK):
        part = bits[begin : begin + CHUNK]
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


# -- The digest of a value ---------------------------------------------------------------------------------------------


Digest: TypeAlias = "tuple[Any, ...]"


def digest(value: Value) -> Digest:
    """Equal for two values where they are the same, bit for bit."""
    if value is None:
        return (None,)
    if isinstance(value, list):
        return ("sequence", *(digest(element) for element in value))
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        return "string", array.shape, hashlib.blake2b(repr(array.tolist()).encode()).digest()
    raw = np.asarray(array, order="C").reshape(-1).view(np.uint8)
    return array.dtype.name, array.shape, hashlib.blake2b(cast("Any", raw)).digest()
