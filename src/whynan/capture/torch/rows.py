"""The last events, in a ring: who wrote what from what, and the operands themselves within a budget of bytes.

Operands are held by their storage, never by the tensor: a held tensor would keep the engine from moving a gradient
into `.grad` and so change the events that a run has. Rows and operands are plain tuples: every event makes some.
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


class Row(NamedTuple):
    """One event: its ordinal, operator, site number, phase, type of autograd node and module number."""

    ordinal: int
    operator: Operator
    site: int
    phase: int
    node: Any
    module: int


class Operands(NamedTuple):
    """What the window keeps of an event: operands, the layout of its first output, the copy of an overwritten one."""

    held: list[Any]
    out: tuple[Any, Any, int] | None
    before: Tensor | None
    bytes: int


class Rows:
    """The ring of rows, and the window of those whose operands are held."""

    def __init__(self, budget: int) -> None:
        # parallel lists, filled in place: an object an event would keep Python's collector busy
        self.ordinals: list[int] = [-1] * RING
        self.operators: list[Any] = [None] * RING
        self.sites: list[int] = [0] * RING
        self.phases: list[int] = [0] * RING
        self.nodes: list[Any] = [None] * RING
        self.modules: list[int] = [0] * RING
        self.operands: dict[int, Any] = {}
        self.order: deque[int] = deque()
        self.budget = budget
        self.bytes = 0
        self.evicted = 0

    def hold(self, ordinal: int, held: list[Any], out: Any, before: Tensor | None, size: int) -> None:
        """Keep an event's operands; the oldest leave when the budget is used up."""
        self.operands[ordinal] = (held, out, before, size)
        self.order.append(ordinal)
        self.bytes += size
        if self.bytes > self.budget:
            self.evict()

    def evict(self) -> None:
        """Let the oldest operands go until the budget holds."""
        while self.bytes > self.budget and self.order:
            gone = self.operands.pop(self.order.popleft())
            self.bytes -= gone[3]
            self.evicted += 1

    def get(self, ordinal: int) -> Row | None:
        """The row of an event, while the ring has it."""
        i = ordinal & MASK
        if ordinal < 0 or self.ordinals[i] != ordinal:
            return None
        return Row(ordinal, self.operators[i], self.sites[i], self.phases[i], self.nodes[i], self.modules[i])

    def of(self, ordinal: int) -> Operands | None:
        """The operands of an event, while the window has them."""
        kept = self.operands.get(ordinal)
        if kept is None:
            return None
        held = [Held._make(h) if type(h) is tuple and len(h) == 6 and _is_held(h) else h for h in kept[0]]
        return Operands(held, *kept[1:])

    def value_of(self, held: Held) -> Tensor | None:
        """An operand as it was when its event ran: live, or the copy taken before it was overwritten."""
        now: Any = getattr(held.storage, ATTRIBUTE, -1)
        writer = now.writer if isinstance(now, State) else now
        if writer == held.writer or writer < 0:
            return held.tensor()
        for ordinal in self.order:
            if ordinal <= held.writer:
                continue
            kept = self.of(ordinal)
            if kept is None or kept.before is None or not kept.held:
                continue
            first = kept.held[0]
            if isinstance(first, Held) and first.writer == held.writer and first.storage is held.storage:
                same = (first.shape, first.stride, first.offset) == (held.shape, held.stride, held.offset)
                return kept.before if same else None
        return None

    def clear(self) -> None:
        """Let go of every operand."""
        self.operands.clear()
        self.order.clear()
        self.ordinals = [-1] * RING
        self.bytes = 0


def _is_held(value: tuple[Any, ...]) -> bool:
    return isinstance(value[0], torch.UntypedStorage)


def held_of(args: tuple[Any, ...]) -> list[Any]:
    """The operands of an event that is being looked at, read off its arguments."""
    found: list[Any] = []
    for value in args:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested:
            storage = value.untyped_storage()
            now: Any = getattr(storage, ATTRIBUTE, -1)
            writer = now.writer if isinstance(now, State) else now
            found.append(Held(storage, value.dtype, value.shape, value.stride(), value.storage_offset(), writer))
        else:
            found.append(value if isinstance(value, (float, int, list, tuple)) else None)
    return found
