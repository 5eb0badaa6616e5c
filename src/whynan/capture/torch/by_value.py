"""Tensors by value: their elements, without what only repeats them, and how they lay in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from whynan.capture.torch.planes import PLAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class UnkeptError(Exception):
    """Why an operation cannot be kept; its text is a clause."""


class Copied(NamedTuple):
    """A tensor by value: its elements in row-major order, without what only repeats them, and how they lay."""

    data: Tensor
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


def copied(tensor: Tensor, content: Tensor | None = None) -> Copied:
    """A tensor by value; `content`: what it held before. Raises ``UnkeptError`` for one that has no plain elements."""
    tensor = plain(tensor)
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    held = tensor if content is None else content.detach()
    data = held[once(tensor)]
    if _overlaps(data.shape, stride):
        data, stride = held, _contiguous(shape)
    data = data.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).cpu()
    return Copied(data, shape, stride, str(tensor.device))


def once(tensor: Tensor) -> tuple[slice, ...]:
    """The part of a tensor of which the rest is only a repetition."""
    layout = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(slice(0, 1) if step == 0 and size > 1 else slice(None) for size, step in layout)


def _overlaps(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements share memory otherwise than by being repeated as a whole."""
    reach = 0
    for step, size in sorted((st, sz) for st, sz in zip(stride, shape, strict=True) if sz > 1):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def plain(tensor: Tensor) -> Tensor:
    """A tensor apart from its graph; raises ``UnkeptError`` for one that has no plain elements of its own."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise UnkeptError("one of its tensors is sparse, nested, quantized, or of a class of its own")
    if tensor.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # pyright: ignore[reportAttributeAccessIssue]
        raise UnkeptError("one of its tensors has no memory of its own")
    return tensor.detach()
