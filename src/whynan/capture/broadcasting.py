"""Which element of an operand meets an element of the output, whatever holds the numbers."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def broadcast_index(shape: Sequence[int], index: tuple[int, ...]) -> tuple[int, ...] | None:
    """The operand element that meets an output element under broadcasting; None where it does not."""
    if len(shape) > len(index):
        return None
    tail = index[len(index) - len(shape) :]
    result: list[int] = []
    for size, i in zip(shape, tail, strict=True):
        if size != 1 and i >= size:
            return None
        result.append(0 if size == 1 else i)
    return tuple(result)
