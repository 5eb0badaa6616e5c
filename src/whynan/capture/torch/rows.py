"""The last events, in a ring: who wrote what from what, and the operands themselves within a budget of bytes.

Operands are held by their storage, never by the tensor: a held tensor would keep the engine from moving a gradient
into `.grad` and so change the events that a run has.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from whynan.capture.torch.planes import ATTRIBUTE, State

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

    from whynan.capture.torch.operators import Operator

RING = 1 << 16
MASK = RING - 1


class Held(NamedTuple):
    """A tensor operand, by its storage, and the ordinal of the event that had written it."""

    storage: UntypedStorage
    dtype: torch.dtype
    shape: Any
    stride: Any
    offset: int
    writer: int

    def tensor(self) -> Tensor:
        """The operand as a tensor of its own."""
        empty = torch.empty(0, dtype=self.dtype, device=self.storage.device)
        return empty.set_(self.storage, self.offset, self.shape, self.stride)


class Row:
    """One event: its ordinal, operator, site and lane facts, and while the window holds them, its operands."""

    __slots__ = ("before", "bytes", "held", "module", "node", "operator", "ordinal", "out", "phase", "site")

    def __init__(self, ordinal: int, operator: Operator, site: int, phase: int, node: Any, module: int) -> None:
        self.ordinal = ordinal
        self.operator = operator
        self.site = site
        self.phase = phase
        self.node = node
        self.module = module
        self.held: list[Any] | None = None
        self.out: tuple[Any, Any, int] | None = None
        self.before: Tensor | None = None
        self.bytes = 0


class Rows:
    """The ring of rows, and the window of those whose operands are held."""

    def __init__(self, budget: int) -> None:
        self.ring: list[Row | None] = [None] * RING
        self.window: deque[Row] = deque()
        self.budget = budget
        self.bytes = 0
        self.evicted = 0

    def add(self, row: Row) -> None:
        """Append an event; the oldest operands leave when the budget is used up."""
        self.ring[row.ordinal & MASK] = row
        if row.held is not None:
            self.window.append(row)
            self.bytes += row.bytes
            while self.bytes > self.budget and self.window:
                old = self.window.popleft()
                self.bytes -= old.bytes
                old.held = None
                old.before = None
                self.evicted += 1

    def get(self, ordinal: int) -> Row | None:
        """The row of an event, while the ring has it."""
        row = self.ring[ordinal & MASK]
        return row if row is not None and row.ordinal == ordinal else None

    def value_of(self, held: Held) -> Tensor | None:
        """An operand as it was when its event ran: live, or the copy taken before it was overwritten."""
        now: Any = getattr(held.storage, ATTRIBUTE, -1)
        writer = now.writer if isinstance(now, State) else now
        if writer == held.writer or writer < 0:
            return held.tensor()
        for row in self.window:
            if row.ordinal > held.writer and row.before is not None and row.held:
                first = row.held[0]
                if isinstance(first, Held) and first.writer == held.writer and first.storage is held.storage:
                    same = (first.shape, first.stride, first.offset) == (held.shape, held.stride, held.offset)
                    return row.before if same else None
        return None

    def clear(self) -> None:
        """Let go of every operand."""
        self.window.clear()
        self.ring = [None] * RING
        self.bytes = 0
