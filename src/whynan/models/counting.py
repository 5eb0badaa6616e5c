"""Counters and finite range of the elements of any tensor, piece by piece so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, cast

import torch
from torch import Tensor

from whynan.errors import UsageError
from whynan.floats import format_of

# -- Counters and finite range of elements; never inferred from a minimum or maximum -----------------------------------


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


def join_counters(first: Counted, second: Counted) -> Counted:
    """The counters of two parts of one tensor as those of both."""
    lows = [low for low in (first[1], second[1]) if low is not None]
    highs = [high for high in (first[2], second[2]) if high is not None]
    counts = {name: first[0][name] + second[0][name] for name in NAMES}
    return counts, min(lows, default=None), max(highs, default=None)


def repeat_counters(counted: Counted, times: int) -> Counted:
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
    table = torch.tensor([*_FP4_VALUES, *(-value for value in _FP4_VALUES)], device="cpu")
    return table[torch.cat((packed & 15, packed >> 4)).int()]


@cache
def _tiny(dtype: torch.dtype) -> float:
    """The smallest normal number of a type; 0 where nothing of it is subnormal."""
    try:
        known = format_of(str(dtype))
    except UsageError:
        return torch.finfo(dtype).tiny
    return known.tiny if known.has_subnormals else 0.0


# -- The elements of a tensor of any kind, counted piece by piece, so that memory stays bounded ------------------------


CHUNK: Final = 1 << 18
"""Elements looked at together: several passes over so many stay in a processor's cache."""


class UncountableError(Exception):
    """A tensor's elements cannot be read; the text says why."""


def count_elements(tensor: Tensor, tick: Callable[[int], None] | None = None, *, chunk: int = CHUNK) -> Counted:
    """Counters and finite range of all elements; of a sparse tensor those stored, of a quantised one what they mean.

    Args:
        tensor: of any type and layout, on the CPU.
        tick: is told after each piece how many bytes it had.
        chunk: elements looked at together.

    Raises:
        UncountableError: with the reason, where there are no elements to read.
    """
    if tensor.is_meta:
        raise UncountableError("it is on the meta device and has no values")
    found = NOTHING
    try:
        for part in _dense(tensor.detach()):
            for piece, times in _pieces(part, chunk):
                found = join_counters(found, repeat_counters(counters(piece), times))
                if tick is not None:
                    tick(piece.numel() * piece.element_size())
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise UncountableError(f"values of {layout_of(tensor)} {tensor.dtype} cannot be read") from error
    return found


def layout_of(tensor: Tensor) -> str:
    """How a tensor holds its elements: ``strided``, ``sparse_coo``, ``nested``, ``quantized``."""
    if tensor.is_nested:
        return "nested"
    return "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")


def _dense(tensor: Tensor) -> list[Tensor]:
    """The dense tensors that hold the elements."""
    if tensor.is_nested:
        return list(cast("Any", tensor).unbind())
    if tensor.is_quantized:
        return [tensor.dequantize()]
    if tensor.layout is torch.sparse_coo:
        # not `values()`: that asks for a coalesced tensor, and coalescing would add elements up
        return [cast("Any", tensor)._values()]
    return [tensor] if tensor.layout is torch.strided else [tensor.values()]


def _pieces(tensor: Tensor, chunk: int) -> Iterator[tuple[Tensor, int]]:
    """Pieces of at most so many elements, and how often the tensor shows each."""
    times = 1
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor, times = tensor.narrow(dim, 0, 1), times * size
    flat = _in_a_row(tensor)
    if flat is not None:
        for start in range(0, flat.numel(), chunk):
            yield flat[start : start + chunk], times
        return
    for piece in _halves(tensor, chunk):
        yield piece, times


def _in_a_row(tensor: Tensor) -> Tensor | None:
    """The same elements in the order of memory, without a copy; None where they have gaps or overlap."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected:
            return None
        expected *= size
    return tensor.as_strided((tensor.numel(),), (1,)) if tensor.numel() else None


def _halves(tensor: Tensor, chunk: int) -> Iterator[Tensor]:
    """A tensor with gaps, cut along its longest side until the pieces are small enough."""
    waiting = [tensor]
    while waiting:
        piece = waiting.pop()
        if piece.numel() <= chunk:
            yield piece
            continue
        side = max(range(piece.dim()), key=lambda dim: piece.shape[dim])
        waiting += reversed(piece.tensor_split(2, dim=side))
