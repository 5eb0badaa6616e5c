"""Which element of an operand meets an element of the output, whatever holds the numbers."""

# pyright: strict

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_DIMENSIONS: Final = 12


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


def index_ahead(out: Sequence[int], place: tuple[int, ...], shape: Sequence[int]) -> tuple[int, ...] | None:
    """The element of a result of shape ``out`` that an element of its gradient, which has another shape, is about.

    What differentiates for a whole batch of directions at once (``jacrev``, ``is_grads_batched``) gives a gradient
    more dimensions than its result has, at any place. None where the sizes do not tell which they are.
    """
    if len(shape) <= len(out) or len(place) != len(shape):
        return place
    if len(shape) > _MOST_DIMENSIONS:
        return None
    kept = (
        d for d in combinations(range(len(shape)), len(out)) if all(shape[n] == o for n, o in zip(d, out, strict=True))
    )
    found = {tuple(place[n] for n in dimensions) for dimensions in kept}
    return found.pop() if len(found) == 1 else None
