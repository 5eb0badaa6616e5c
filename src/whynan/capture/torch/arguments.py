"""An event to be explained: its arguments as they were, the labels they carry, which elements are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from whynan.capture.torch import experiments
from whynan.capture.torch.planes import nan_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from whynan.capture.torch.labels import Labels
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.rows import LiveEvent

APART: Final = 8
"""So many elements that one event bears are told apart; of more, only NaN from Inf."""


@dataclass(slots=True)
class Carrier:
    """The labels of one operand: those that explain a bad result, literals, and those kept in saved tensors."""

    tensor: Tensor
    explains: Tensor | None = None
    literal: Tensor | None = None
    literal_nan: bool = False
    saved: Tensor | None = None

    @property
    def planes(self) -> list[Tensor]:
        return [p for p in (self.explains, self.literal, self.saved) if p is not None]


@dataclass(slots=True)
class Question:
    """One event to be explained; `gone` holds the ids of operands that it has overwritten."""

    operator: Operator
    arguments: experiments.Arguments
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


def entry_of_lists(arguments: experiments.Arguments) -> int:
    """How many entries the lists of a foreach event have."""
    args, kwargs = arguments
    return next((len(v) for v in (*args, *kwargs.values()) if isinstance(v, (list, tuple)) and len(v)), 0)


def number_of_output(operator: Operator, question: Question, index: int) -> int:
    """Which of an operator's results the tensor number `index` that it wrote is; 0 of an argument that it changed."""
    if operator.foreach or not operator.mutable or operator.alias_returns:
        return 0 if operator.foreach else index
    args, kwargs = question.arguments
    changed = (kwargs.get(k) if isinstance(k, str) else args[k] if k < len(args) else None for k in operator.mutable)
    return max(0, index - sum(len(experiments.tensors_in(value)) for value in changed))


def single(
    operator: Operator, arguments: experiments.Arguments, index: int
) -> tuple[experiments.Arguments, int] | None:
    """Of a foreach event the arguments with one entry in each list, and the number of its output among those.

    None for an event that is not entry by entry: the scaler's check of all gradients together.
    """
    if not operator.foreach:
        return arguments, index
    args, kwargs = arguments
    lists = [v for v in (*args, *kwargs.values()) if isinstance(v, (list, tuple)) and len(experiments.tensors_in(v))]
    if not lists or operator.name.startswith("aten._amp_"):
        return None
    length = len(lists[0])
    entry = index % length

    def one(value: Any) -> Any:
        return [value[entry]] if isinstance(value, (list, tuple)) and len(value) == length else value

    return (tuple(one(a) for a in args), {k: one(v) for k, v in kwargs.items()}), index // length


class Before(NamedTuple):
    """An event's arguments as they were.

    `gone`: ids of operands whose content the event, or a later one, has overwritten; `changed`: for each of these, and
    for each copy that was taken before, the tensor that was changed, whose storage carries the planes.
    """

    arguments: experiments.Arguments
    gone: frozenset[int]
    changed: dict[int, Tensor]

    @property
    def copied(self) -> frozenset[int]:
        """Ids of the copies."""
        return frozenset(self.changed) - self.gone


def as_before(live: LiveEvent) -> Before:
    """The arguments as they were: copies in place of what the event overwrote."""
    (row, args, kwargs), before, changed_since = live[:3], live.before, live.changed_since
    gone: set[int] = set(changed_since)
    changed: dict[int, Tensor] = {
        id(t): t for a in (args, kwargs.values()) for t in experiments.tensors_in(list(a)) if id(t) in changed_since
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

        holder[key] = experiments.map_tensors(holder[key], old)
    return Before((tuple(new_args), new_kwargs), frozenset(gone), changed)


def apart(born: Tensor, output: Tensor) -> Iterator[tuple[Tensor, int]]:
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
