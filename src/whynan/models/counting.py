"""Counters and finite range of elements; never inferred from a minimum or maximum."""

# pyright: strict

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from whynan.errors import UsageError
from whynan.floats import format_of

if TYPE_CHECKING:
    from torch import Tensor

Counted = tuple[dict[str, int], float | None, float | None]
"""Counts of special values, and the least and greatest finite element."""

NAMES: Final = ("n", "n_nan", "n_posinf", "n_neginf", "n_zero", "n_subnormal")
NOTHING: Final[Counted] = (dict.fromkeys(NAMES, 0), None, None)
_FP4: Final = getattr(torch, "float4_e2m1fn_x2", None)
_FP4_VALUES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_FP4_TINY: Final = 1.0
_NUMPY_ONLY: Final = frozenset((torch.uint16, torch.uint32, torch.uint64))
"""Types that PyTorch holds and cannot search."""


def counters(tensor: Tensor) -> Counted:
    """Explicit counts of special values, and least and greatest of the finite elements, of a dense tensor.

    A complex element counts as its two parts. Raises ``RuntimeError`` for types without readable elements.
    """
    dtype = tensor.dtype
    if dtype is _FP4:
        return _floats(_unpacked(tensor), _FP4_TINY)
    if not dtype.is_complex and not dtype.is_floating_point:
        return _integers(tensor)
    if dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    elif dtype.itemsize == 1:
        tensor = tensor.float()
    return _floats(tensor, _tiny(dtype))


def joined(first: Counted, second: Counted) -> Counted:
    """The counters of two parts of one tensor as those of both."""
    lows = [low for low in (first[1], second[1]) if low is not None]
    highs = [high for high in (first[2], second[2]) if high is not None]
    counts = {name: first[0][name] + second[0][name] for name in NAMES}
    return counts, min(lows, default=None), max(highs, default=None)


def repeated(counted: Counted, times: int) -> Counted:
    """The counters of elements that a tensor shows so many times."""
    return {name: count * times for name, count in counted[0].items()}, counted[1], counted[2]


def _floats(tensor: Tensor, tiny: float) -> Counted:
    n = tensor.numel()
    if n == 0:
        return NOTHING
    low, high = _ends(tensor)
    # all in one sign, and far from 0: the usual case needs no second pass
    small = 0 if low >= tiny or high <= -tiny else int(torch.count_nonzero(tensor.abs() < tiny))
    zero = n - int(torch.count_nonzero(tensor)) if small else 0
    counts = {"n": n, "n_nan": 0, "n_posinf": 0, "n_neginf": 0, "n_zero": zero, "n_subnormal": small - zero}
    if high - low == high - low and abs(low) != float("inf") and abs(high) != float("inf"):
        return counts, low, high
    counts["n_nan"] = int(torch.isnan(tensor).sum())
    counts["n_posinf"] = int(torch.isposinf(tensor).sum())
    counts["n_neginf"] = int(torch.isneginf(tensor).sum())
    finite = tensor[torch.isfinite(tensor)]
    return (counts, *_ends(finite)) if finite.numel() else (counts, None, None)


def _ends(tensor: Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(tensor)
    return low.item(), high.item()


def _integers(tensor: Tensor) -> Counted:
    """Whole numbers and truth values: never bad."""
    n = tensor.numel()
    if n == 0:
        return NOTHING
    if tensor.dtype in _NUMPY_ONLY:
        held = cast("Any", tensor.numpy())
        low, high, zero = int(held.min()), int(held.max()), n - int((held != 0).sum())
    else:
        low, high = (int(end) for end in _ends(tensor))
        zero = n - int(torch.count_nonzero(tensor))
    return {**NOTHING[0], "n": n, "n_zero": zero}, low, high


def _unpacked(tensor: Tensor) -> Tensor:
    """The elements of packed 4-bit floats, two a byte: sign, two bits of exponent, one of fraction; none is bad."""
    packed = tensor.view(torch.uint8).flatten()
    table = torch.tensor([*_FP4_VALUES, *(-value for value in _FP4_VALUES)])
    return table[torch.cat((packed & 15, packed >> 4)).int()]


@cache
def _tiny(dtype: torch.dtype) -> float:
    """The smallest normal number of a type; 0 where nothing of it is subnormal."""
    try:
        known = format_of(str(dtype))
    except UsageError:
        return torch.finfo(dtype).tiny
    return known.tiny if known.has_subnormals else 0.0
