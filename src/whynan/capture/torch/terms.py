"""Which term of a sum of products made it what it is, and which entry of a list an element came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch import experiments
from whynan.capture.torch.operands import unravel
from whynan.capture.torch.rows import Held

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.rows import Row

PRODUCTS: Final = frozenset("mm bmm addmm baddbmm mv addmv dot".split())


class Factor(NamedTuple):
    """The row of an operand that a product ran over: the operand, its tensor and the row, a view of it."""

    held: Held
    tensor: Tensor
    row: Tensor


class Term(NamedTuple):
    """The decisive term: both factors, which of them to follow, and where that lies in its operand's storage."""

    values: tuple[float, float]
    follow: Held
    address: int
    tensor: Tensor


def decisive_term(first: Factor, second: Factor, value: float, computed: tuple[bool, bool]) -> Term | None:
    """The greatest term of a product of two rows; of a product that is 0, the term whose computed factor is 0.

    `computed`: whether each operand was computed in this trace, and so has a cause of its own.
    """
    a, b = first.row, second.row
    if a.dim() != 1 or a.shape != b.shape or not a.numel() or not a.is_floating_point():
        return None
    wide, other = a.detach().double(), b.detach().double()
    if value == 0:
        # a 0 that was computed beside the greatest partner says most
        weight = torch.stack(
            [torch.where(wide == 0, other.abs() + 1, -1.0), torch.where(other == 0, wide.abs() + 1, -1.0)]
        )
        for side in (0, 1):
            if not computed[side] and computed[1 - side]:
                weight[side] = torch.where(weight[side] > 0, 0.0, -1.0)
        place = int(weight.argmax())
        if float(weight.reshape(-1)[place]) < 0:
            return None
        side, k = divmod(place, a.numel())
    else:
        k = int((wide * other).abs().argmax())
        x, y = abs(float(wide[k])), abs(float(other[k]))
        side = int((x < y) if abs(value) >= 1 else (x > y))
    chosen = (first, second)[side]
    address = int(chosen.row.storage_offset()) + k * int(chosen.row.stride(0))
    return Term((float(wide[k]), float(other[k])), chosen.held, address, chosen.tensor)


def from_list(row: Row, held: list[Any], position: tuple[int, ...]) -> tuple[Held, tuple[int, ...]] | None:
    """The entry of the list that ``cat`` or ``stack`` joined, and the element of it that arrived at `position`."""
    entries = held[0]
    if not isinstance(entries, list) or not all(isinstance(h, Held) for h in entries):
        return None
    numbers: list[Tensor] = []
    total = 0
    for entry in entries:
        count = entry.alias.numel()
        numbers.append(torch.arange(total, total + count).reshape(entry.shape))
        total += count
    try:
        with experiments.unseen():
            joined = row.operator.func(numbers, *held[1:])
        place = int(joined[position])
    except experiments.ANSWERLESS:
        return None
    for entry, number in zip(entries, numbers, strict=True):
        if place < number.numel():
            return entry, unravel(place, number.shape)
        place -= number.numel()
    return None
