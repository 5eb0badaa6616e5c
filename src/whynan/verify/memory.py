"""Storage of a recorded function's tensors: which name holds it, through views and in-place writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class UnrecordableError(Exception):
    """Something a function did that no program can say; the text names it."""


class Layout(NamedTuple):
    """Which elements of its memory a tensor is, and as what dtype."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Name(NamedTuple):
    """What a layout of a memory was called, when its memory had been written so many times."""

    name: str
    version: int
    detached: bool


@dataclass
class Memory:
    """One storage: the name and layout of all that it holds now, and of its views."""

    root: str
    layout: Layout
    version: int = 0
    names: dict[tuple[Layout, bool], Name] = field(default_factory=dict[tuple[Layout, bool], Name])

    def find_alias(self, layout: Layout, needs_grad: bool) -> Name | None:
        """What a view was called when it was made; detached and attached aliases of one layout are told apart."""
        other = self.names.get((layout, not needs_grad))
        found = self.names.get((layout, needs_grad))
        return found or (None if other is None or (needs_grad and other.detached) else other)

    def positions(self, layout: Layout) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where the elements of a layout stand in the root laid out flat; raises where one does not."""
        if layout.dtype != self.layout.dtype:
            raise UnrecordableError("a view of memory as another dtype that is written to")
        wanted, held = _offsets(layout).reshape(-1), _offsets(self.layout).reshape(-1)
        order = np.argsort(held, kind="stable")
        found = np.searchsorted(held[order], wanted)
        found = np.minimum(found, held.size - 1)
        if not np.array_equal(held[order][found], wanted):
            raise UnrecordableError("a write to memory that the function was not given whole")
        return order[found].astype(np.int64)


def layout_of(tensor: Tensor) -> Layout:
    """The layout of a tensor that has memory of its own kind; raises for sparse, quantised and nested ones."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise UnrecordableError("a tensor that is sparse, quantised or nested")
    # a conjugated view has the memory of another tensor, and other numbers
    kind = (tensor.dtype, tensor.is_conj(), tensor.is_neg()) if tensor.is_conj() or tensor.is_neg() else tensor.dtype
    return Layout(kind, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))


def _offsets(layout: Layout) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Of each element of a layout, where in the memory it stands."""
    offsets = np.full(layout.shape, layout.offset, dtype=np.int64)
    for axis, (size, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        steps = np.arange(size, dtype=np.int64) * stride
        offsets = offsets + steps.reshape((-1,) + (1,) * (len(layout.shape) - axis - 1))
    return offsets
