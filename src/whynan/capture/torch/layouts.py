"""How a tensor lies in its memory, and which of its rows the elements of another tensor over that memory are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor


class Layout(NamedTuple):
    """Sizes and strides of a tensor or array; `start` is its first element's, in elements, from where its memory is."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    itemsize: int

    def rows(self, tensor: Tensor, mask: Tensor, shift: int = 0) -> list[int] | None:
        """The rows (places in the first dimension) that the marked elements of a tensor are in, from the least.

        `shift`: how many bytes after the tensor's memory this one begins. None where an element lies outside; empty
        where the layout does not tell.
        """
        if not shift and layout_of(tensor) == self:
            found = mask.reshape(self.shape[0], -1).any(1).nonzero().flatten().tolist() if self.shape else []
            return [int(row) for row in found]
        places = mask.nonzero().cpu()
        rest = places @ torch.tensor(tensor.stride(), dtype=torch.int64) + int(tensor.storage_offset())
        return self._rows_at(rest * tensor.element_size() - self.start * self.itemsize - shift)

    def _rows_at(self, rest: Tensor) -> list[int] | None:
        """The rows of places, in bytes from the first element."""
        row: Tensor | None = None
        certain = not self._overlaps()
        for dim in sorted(range(len(self.shape)), key=lambda d: -self.strides[d]):
            step = self.strides[dim] * self.itemsize
            index = torch.zeros_like(rest)
            if self.shape[dim] > 1 and step > 0:
                index = torch.div(rest, step, rounding_mode="floor").clamp(0, self.shape[dim] - 1)
                rest = rest - index * step
            if dim == 0:
                row = index
        if bool(((rest < 0) | (rest >= self.itemsize)).any()):
            return None
        return [int(r) for r in torch.unique(row).tolist()] if row is not None and certain else []

    def _overlaps(self) -> bool:
        """Whether two elements may share a place: an expanded dimension, a window that slides."""
        reach = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1:
                if stride < reach:
                    return True
                reach += (size - 1) * stride
        return False


def layout_of(tensor: Tensor) -> Layout:
    """The layout of a strided tensor."""
    return Layout(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.element_size())
