"""The neighbourhoods of births as they grow: upstream at once, downstream as the events come."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from whynan.records import Argument, Neighbourhood, Operation, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from whynan.traces import Birth

MOST: Final = 24
"""So many events before the middle of a neighbourhood, and as many after it."""
DEPTH: Final = 8
"""So far before it; and of what meets it downstream, half as far before that."""
REACH: Final = 7
"""So far after it."""
_OPEN: Final = 64
"""So many neighbourhoods grow at once: those that were begun last."""


class EventSource(Protocol):
    """How a capture tells of its events; asked only when something is bad."""

    def writers_read(self, event: int) -> frozenset[int]:
        """The events that had written what an event has read."""
        ...

    def operation(self, event: int, hops: int, numbers: Numbers) -> Operation | None:
        """What is still known of an event; None where that is nothing."""
        ...


@dataclass(slots=True)
class Numbers:
    """A number for each distinct set of elements."""

    known: dict[Hashable, int] = field(default_factory=lambda: {})

    def number_of(self, elements: Hashable) -> int:
        """The number of some elements, new where they were not met before."""
        return self.known.setdefault(elements, len(self.known))


@dataclass(slots=True)
class _Growing:
    middle: int
    operations: dict[int, Operation] = field(default_factory=lambda: {})
    births: list[Birth] = field(default_factory=lambda: [])
    numbers: Numbers = field(default_factory=Numbers)
    after: int = 0
    gone: int = 0

    def made(self, dialect: Literal["aten", "onnx"]) -> Neighbourhood:
        ordered = tuple(self.operations[event] for event in sorted(self.operations))
        return Neighbourhood(dialect=dialect, middle=self.middle, operations=ordered, gone=self.gone)


class NeighbourhoodLog:
    """The neighbourhoods of one run, by the events in their middles."""

    def __init__(self, seen: EventSource, dialect: Literal["aten", "onnx"]) -> None:
        self._seen = seen
        self._dialect: Literal["aten", "onnx"] = dialect
        self._growing: dict[int, _Growing] = {}

    def begin(
        self,
        birth: Birth,
        middle: int,
        later: Iterable[int] = (),
        left_out: Callable[[], Selection | None] | None = None,
    ) -> None:
        """A birth has its neighbourhood around an event; `later`: events that have come since, in their order.

        `left_out` is asked what left the result of that event out.
        """
        growing = self._growing.get(middle)
        if growing is None:
            growing = _Growing(middle)
            self._upstream(growing, middle, DEPTH, MOST + 1)
            if middle not in growing.operations:
                return
            while len(self._growing) >= _OPEN:
                del self._growing[next(iter(self._growing))]
            self._growing[middle] = growing
            for event in later:
                self._grow(growing, event, self._seen.writers_read(event))
        growing.births.append(birth)
        around = growing.made(self._dialect)
        found = None if left_out is None else left_out()
        birth.around = around if found is None else around.model_copy(update={"left_out": found})

    def record_bad_reader(self, event: int) -> None:
        """An event has read something bad: it belongs to the neighbourhoods that it has read from."""
        read = self._seen.writers_read(event) if self._growing else frozenset[int]()
        for growing in self._growing.values():
            if self._grow(growing, event, read):
                made = growing.made(self._dialect)
                for birth in growing.births:
                    known = None if birth.around is None else birth.around.left_out
                    birth.around = made if known is None else made.model_copy(update={"left_out": known})

    def _grow(self, growing: _Growing, event: int, read: frozenset[int]) -> bool:
        """Add an event that has read what is downstream already; whether it has."""
        if event in growing.operations or growing.after >= MOST:
            return False
        hops = [growing.operations[e].hops for e in read if e in growing.operations]
        if not hops or not 0 <= max(hops) < REACH:
            return False
        found = self._seen.operation(event, 0, growing.numbers)
        if found is None:
            return False
        start = len(growing.operations)
        growing.operations[event] = found.model_copy(update={"hops": max(hops) + 1})
        left = MOST - growing.after - 1
        self._upstream(growing, event, DEPTH // 2, left)
        growing.after += len(growing.operations) - start
        return True

    def _upstream(self, growing: _Growing, event: int, depth: int, left: int) -> None:
        """Add what an event was computed from, so deep and so many, and the event itself where it is not there."""
        queue = deque([(event, 0)])
        start = len(growing.operations)
        while queue:
            number, deep = queue.popleft()
            found = growing.operations.get(number)
            if found is None:
                if len(growing.operations) - start >= left:
                    continue
                found = self._seen.operation(number, -deep, growing.numbers)
                if found is None:
                    growing.gone += 1
                    continue
                growing.operations[number] = found
            elif deep:
                continue
            if deep < depth:
                queue.extend((a.event, deep + 1) for a in found.arguments if a.event is not None)


def limits(low: object, high: object) -> tuple[float | int | None, float | int | None]:
    """Least and greatest as numbers of a report; None where they are none."""
    if isinstance(low, (int, float)) and isinstance(high, (int, float)):
        return low, high
    return None, None


def plain_argument(name: str, value: object) -> Argument | None:
    """A number, or a short list of numbers, that an operation was given."""
    if isinstance(value, (bool, int, float)):
        return Argument(name=name, value=value)
    if isinstance(value, (list, tuple)):
        numbers = [v for v in value if isinstance(v, (bool, int, float))]  # pyright: ignore[reportUnknownVariableType]
        if len(numbers) == len(value) <= 8:  # pyright: ignore[reportUnknownArgumentType]
            return Argument(name=name, numbers=tuple(numbers))
    return None
