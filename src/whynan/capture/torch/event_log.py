"""The event log: a ring buffer of the last events, with the operands themselves within a byte budget."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.shadow_memory import PLAIN, elements, is_freed, is_strided, nan_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from whynan.capture.provenance.arrays import Carrier
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.provenance.labels import Labels
    from whynan.capture.torch.sites import Lane


# -- The last events, in a ring: who wrote what from what, and the operands themselves within a budget of bytes --------
#
# Operands are held by an alias of their storage, never by the tensor itself: a held tensor would keep the engine from
# moving a gradient into `.grad` and so change the events that a run has.


RING = 1 << 16
DEFAULT_WINDOW = 64 << 20
"""Bytes of operands that are held where no budget is given."""
ACCUMULATE_GRAD = 2**64 - 1
"""The number of the nodes that add into a leaf's gradient, which differentiate no operation."""
# what holding an event costs besides its operands' bytes: objects, and the collector's walks over them
OVERHEAD = 1 << 12
MASK = RING - 1
WRITER = "_whynan_writer"
COUNTED = "_whynan_counted"
_LISTS = frozenset((list, tuple))
_PLAIN_VALUES = frozenset((float, int, bool, list, tuple))
FEW_ENTRIES = 64
"""Lists of so many tensors are held with their event; a longer one is a foreach operation's."""
ALIVE = -2
"""``COUNTED`` of a parameter: the program itself keeps it alive."""


def is_leaf(tensor: Tensor) -> bool:
    """Whether a tensor is a leaf; torch raises for a view that was made without recording a graph and then written."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


class Held(NamedTuple):
    """A tensor operand by an alias of its storage, and the event that had written it.

    Below autograd an alias has no version counter in common with its tensor: the last writer of the storage is what
    tells whether the operand still is what it was.
    """

    alias: Tensor
    writer: int

    @property
    def shape(self) -> Any:
        """The operand's shape."""
        return self.alias.shape


class Row(NamedTuple):
    """One event: its ordinal, operator, site number, phase, type of autograd node and module number."""

    ordinal: int
    operator: Operator
    site: int
    phase: int
    node: Any
    module: int


class LiveEvent(NamedTuple):
    """An event that has run, with its operands and results as they are now.

    `before`: copies of what it has overwritten, by the identity of the tensor; `changed_since`: the identities of
    operands that were overwritten after it, before it could be looked at.
    """

    row: Row
    args: Any
    kwargs: dict[str, Any]
    written: list[Tensor]
    before: dict[int, Tensor] | None
    node: Any
    lane: Lane
    changed_since: frozenset[int] = frozenset()


class Operands(NamedTuple):
    """What the window keeps of an event: operands, the layout of its first output, the copy of an overwritten one."""

    held: list[Any]
    out: tuple[Any, Any, int] | None
    before: Tensor | None
    bytes: int
    named: dict[str, Any] | None
    """Numbers among the arguments that are given by name."""


class Rows:
    """The ring of rows, and the window of those whose operands are held."""

    def __init__(self, budget: int | None) -> None:
        # parallel lists, filled in place: an object an event would keep Python's collector busy
        self.ordinals: list[int] = [-1] * RING
        self.operators: list[Any] = [None] * RING
        self.sites: list[int] = [0] * RING
        self.phases: list[int] = [0] * RING
        self.nodes: list[Any] = [None] * RING
        self.modules: list[int] = [0] * RING
        self.operands: dict[int, Any] = {}
        self.order: deque[int] = deque()
        self.budget = DEFAULT_WINDOW if budget is None else budget
        self.bytes = 0
        self.evicted = 0

    def hold(
        self, ordinal: int, held: list[Any], out: Any, before: Tensor | None, size: int, named: dict[str, Any]
    ) -> None:
        """Keep an event's operands; the oldest leave when the budget is used up."""
        size += OVERHEAD
        numbers = {k: v for k, v in named.items() if type(v) in _PLAIN_VALUES} if named else None
        self.operands[ordinal] = (held, out, before, size, numbers)
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

    def operands_at(self, ordinal: int) -> Operands | None:
        """The operands of an event, while the window has them."""
        kept = self.operands.get(ordinal)
        if kept is None:
            return None
        return Operands([_named(h) for h in kept[0]], *kept[1:])

    def operands_of(
        self, args: Any, site: int, ordinal: int, first_used: Callable[[Tensor, int], None]
    ) -> tuple[list[Any], int]:
        """The operands of a forward event, by alias, and the bytes of those that nothing in the window has counted.

        `first_used` is told of leaves: where a leaf is used first is where its gradient accumulates later.
        """
        held: list[Any] = []
        size = 0
        window = self.operands
        for value in args:
            if type(value) in PLAIN:
                try:
                    writer = getattr(value.untyped_storage(), WRITER, -1)
                    held.append((value.detach(), writer))
                except (RuntimeError, NotImplementedError):
                    held.append(None)
                    continue
                if writer not in window:
                    size += self.uncounted(value, ordinal)
                if value.requires_grad and is_leaf(value):
                    first_used(value, site)
            elif type(value) in _LISTS and value and isinstance(value[0], torch.Tensor):
                few = len(value) <= FEW_ENTRIES
                entries, more = self.operands_of(value, site, ordinal, first_used) if few else (None, 0)
                held.append(entries)
                size += more
            else:
                held.append(value if type(value) in _PLAIN_VALUES else None)
        return held, size

    def let_go(self) -> None:
        """Hold no operands any more."""
        self.operands.clear()
        self.order.clear()
        self.bytes = 0

    def uncounted(self, tensor: Tensor, ordinal: int) -> int:
        """Bytes of a tensor that event `ordinal` holds, unless an event of the window has counted them."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return 0
        counted = getattr(storage, COUNTED, -1)
        if counted == ALIVE or counted in self.operands:
            return 0
        if type(tensor) is torch.nn.Parameter:
            setattr(storage, COUNTED, ALIVE)
            return 0
        setattr(storage, COUNTED, ordinal)
        return storage.nbytes()

    def note(self, tensor: Tensor, ordinal: int) -> None:
        """Remember which event wrote a tensor, on its storage: an address is soon used again."""
        setattr(tensor.untyped_storage(), WRITER, ordinal)

    def writer_of(self, tensor: Tensor) -> int:
        """The event that last wrote a tensor's storage; -1 for one from outside, or where there is none."""
        try:
            return getattr(elements(tensor).untyped_storage(), WRITER, -1)
        except (RuntimeError, NotImplementedError):
            return -1

    def is_live(self, held: Held) -> bool:
        """Whether an operand still is what it was when its event ran."""
        return self.writer_of(held.alias) == held.writer and not is_freed(held.alias)

    def value_of(self, held: Held) -> Tensor | None:
        """An operand as it was when its event ran: live, or the copy taken before it was overwritten."""
        if self.is_live(held):
            return held.alias
        for ordinal in self.order:
            if ordinal <= held.writer or self.operands[ordinal][2] is None:
                continue
            kept = self.operands_at(ordinal)
            first = kept.held[0] if kept is not None and kept.held else None
            if (
                kept is not None
                and isinstance(first, Held)
                and first.writer == held.writer
                and address(first.alias) == address(held.alias)
            ):
                same = first.shape == held.shape and first.alias.stride() == held.alias.stride()
                return kept.before if same and first.alias.storage_offset() == held.alias.storage_offset() else None
        return None

    def clear(self) -> None:
        """Let go of every operand."""
        self.operands.clear()
        self.order.clear()
        self.ordinals = [-1] * RING
        self.bytes = 0


def address(tensor: Tensor) -> int:
    """The address of a tensor's storage."""
    return tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()


def held_of(args: tuple[Any, ...], writer_of: Callable[[Tensor], int]) -> list[Any]:
    """The operands of an event that is being looked at, read off its arguments."""
    found: list[Any] = []
    for value in args:
        if isinstance(value, torch.Tensor) and is_strided(value):
            found.append(Held(value.detach(), writer_of(value)))
        else:
            found.append(value if isinstance(value, (float, int, list, tuple)) else None)
    return found


def _named(value: Any) -> Any:
    if type(value) is tuple and value and isinstance(value[0], torch.Tensor):
        return Held._make(value) if is_strided(value[0]) else None
    if type(value) is list:
        return [_named(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    return value


# -- An event to be explained: its arguments as they were, the labels they carry, which elements are told apart --------


APART: Final = 8
"""So many elements that one event bears are told apart; of more, only NaN from Inf."""


@dataclass(slots=True)
class Question:
    """One event to be explained; `gone` holds the ids of operands that it has overwritten."""

    operator: Operator
    arguments: interventions.Arguments
    carriers: dict[int, Carrier]
    scalar_literal: int
    labels: Labels
    outputs: list[Tensor]
    gone: frozenset[int] = frozenset()


def entry_of(operator: Operator, question: Question, index: int) -> int | None:
    """The entry of a foreach operator's lists that output `index` belongs to."""
    if not operator.foreach:
        return None
    args, kwargs = question.arguments
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
            return index % len(value)
    return None


def entry_of_lists(arguments: interventions.Arguments) -> int:
    """How many entries the lists of a foreach event have."""
    args, kwargs = arguments
    return next((len(v) for v in (*args, *kwargs.values()) if isinstance(v, (list, tuple)) and len(v)), 0)


def number_of_output(operator: Operator, question: Question, index: int) -> int:
    """Which of an operator's results the tensor number `index` that it wrote is; 0 of an argument that it changed."""
    if operator.foreach or not operator.mutable or operator.alias_returns:
        return 0 if operator.foreach else index
    args, kwargs = question.arguments
    changed = (kwargs.get(k) if isinstance(k, str) else args[k] if k < len(args) else None for k in operator.mutable)
    return max(0, index - sum(len(interventions.tensors_in(value)) for value in changed))


def single(
    operator: Operator, arguments: interventions.Arguments, index: int
) -> tuple[interventions.Arguments, int] | None:
    """Of a foreach event the arguments with one entry in each list, and the number of its output among those.

    None for an event that is not entry by entry: the scaler's check of all gradients together.
    """
    if not operator.foreach:
        return arguments, index
    args, kwargs = arguments
    lists = [v for v in (*args, *kwargs.values()) if isinstance(v, (list, tuple)) and len(interventions.tensors_in(v))]
    if not lists or operator.name.startswith("aten._amp_"):
        return None
    length = len(lists[0])
    entry = index % length

    def one(value: Any) -> Any:
        return [value[entry]] if isinstance(value, (list, tuple)) and len(value) == length else value

    return (tuple(one(a) for a in args), {k: one(v) for k, v in kwargs.items()}), index // length


class OriginalArguments(NamedTuple):
    """An event's arguments as they were.

    `gone`: ids of operands whose content the event, or a later one, has overwritten; `changed`: for each of these, and
    for each copy that was taken before, the tensor that was changed, whose storage carries the planes.
    """

    arguments: interventions.Arguments
    gone: frozenset[int]
    changed: dict[int, Tensor]

    @property
    def copied(self) -> frozenset[int]:
        """Ids of the copies."""
        return frozenset(self.changed) - self.gone


def original_arguments(live: LiveEvent) -> OriginalArguments:
    """The arguments as they were: copies in place of what the event overwrote."""
    (row, args, kwargs), before, changed_since = live[:3], live.before, live.changed_since
    gone: set[int] = set(changed_since)
    changed: dict[int, Tensor] = {
        id(t): t for a in (args, kwargs.values()) for t in interventions.tensors_in(list(a)) if id(t) in changed_since
    }
    new_args, new_kwargs = list(args), dict(kwargs)
    for key in row.operator.mutable:
        holder: Any = new_kwargs if isinstance(key, str) else new_args
        if (isinstance(key, str) and key not in new_kwargs) or (not isinstance(key, str) and key >= len(new_args)):
            continue

        def old(tensor: Tensor) -> Tensor:
            copy = before.get(id(tensor)) if before is not None else None
            if copy is None:
                gone.add(id(tensor))
                changed[id(tensor)] = tensor
                return tensor
            changed[id(copy)] = tensor
            return copy

        holder[key] = interventions.map_tensors(holder[key], old)
    return OriginalArguments((tuple(new_args), new_kwargs), frozenset(gone), changed)


def split_births(born: Tensor, output: Tensor) -> Iterator[tuple[Tensor, int]]:
    """The born elements in parts that may have fates of their own, each with the count of its kind."""
    nan = born & nan_mask(output)
    for kind in (nan, born & ~nan):
        count = int(kind.sum())
        if 0 < count <= APART:
            for place in kind.nonzero():
                part = torch.zeros_like(kind)
                part[tuple(place)] = True
                yield part, count
        elif count:
            yield kind, count
