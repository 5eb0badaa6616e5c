"""The elements of a tensor of any kind, counted piece by piece, so that memory stays bounded."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import torch

from whynan.models.counting import NOTHING, Counted, counters, joined, repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

CHUNK: Final = 1 << 18
"""Elements looked at together: several passes over so many stay in a processor's cache."""


class UncountableError(Exception):
    """A tensor's elements cannot be read; the text says why."""


def counted(tensor: Tensor, tick: Callable[[int], None] | None = None, *, chunk: int = CHUNK) -> Counted:
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
                found = joined(found, repeated(counters(piece), times))
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
