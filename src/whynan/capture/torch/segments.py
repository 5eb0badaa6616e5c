"""The events of a trace on disk: what the ring holds, as arrays, and the names of what they are of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from whynan.capture.torch.lanes import OPTIMIZER
from whynan.capture.torch.rows import MASK
from whynan.traces import format as layout
from whynan.traces.documents import SiteLine, text_line, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from whynan.capture.torch.context import TraceContext
    from whynan.records import Range, Site
    from whynan.traces.writing import TraceWriter

T = TypeVar("T")

WALKS: Final = 8
"""The modules are walked for new names when there are so much more of them, as a share: some programs make ever new."""


class Segments:
    """Copies the ring into segments, and appends the lines that they name before they are there."""

    def __init__(self, writer: TraceWriter, context: TraceContext) -> None:
        self.ranges = 0
        """Lines of ranges that were written."""
        self._writer = writer
        self._context = context
        self._next = context.first
        self._operators = _Numbers()
        self._nodes = _Numbers((None,))
        self._written: dict[str, int] = dict.fromkeys(layout.TABLES, 0)
        self._walked = 1
        # an ordinal, and step and micro from it on
        self._marks: list[tuple[int, int, int]] = [(0, 0, 0)]

    def mark(self) -> None:
        """Note where a step or a backward has ended, and what modules are called while they are there."""
        modules = len(self._context.names)
        if modules > self._walked + self._walked // WALKS:
            self._walked = modules
            self._context.names.paths()
        steps = self._context.log.steps
        step = steps.attempts + 1 if steps.met else 0
        if (step, steps.micro) != self._marks[-1][1:]:
            self._marks.append((self._context.ordinal, step, steps.micro))

    def flush(self) -> None:
        """Write what the ring holds and no segment does."""
        context = self._context
        # what an earlier turn of the ring has held is gone
        start, stop = max(self._next, (context.ordinal - 1) & ~MASK), context.ordinal
        self._next = stop
        if stop <= start or self._writer.note is not None:
            return
        if self._writer.left_out is None:
            events = self._events(start, stop)
            if self._tables():
                self._writer.segment(events)
        self.finish(context.ranges.records(self._site, self.ranges), self.ranges)

    def finish(self, ranges: Iterable[Range], first: int = 0) -> None:
        """Write those ranges that are not written, of all from one on."""
        new = list(ranges)[self.ranges - first :]
        if self._writer.append(layout.RANGES, [written(self._writer.private(found)) for found in new]):
            self.ranges += len(new)

    def _events(self, start: int, stop: int) -> NDArray[np.void]:
        """The rows of one turn of the ring, from ordinal to ordinal."""
        rows = self._context.rows
        turn = slice(start & MASK, ((stop - 1) & MASK) + 1)
        ordinals = np.array(rows.ordinals[turn], np.int64)
        there = (ordinals >= start) & (ordinals < stop)
        made = np.zeros(len(ordinals), layout.event_dtype())
        made["ordinal"] = ordinals - self._context.first
        made["operator"] = list(map(self._operators.__getitem__, rows.operators[turn]))
        made["node"] = list(map(self._nodes.__getitem__, rows.nodes[turn]))
        made["site"], made["module"], made["phase"] = rows.sites[turn], rows.modules[turn], rows.phases[turn]
        made["step"], made["micro"] = self._steps(ordinals, made["phase"])
        return made if there.all() else made[there]

    def _steps(self, ordinals: NDArray[Any], phases: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Step and micro of events, by the marks before them."""
        marks = np.array(self._marks, np.int64)
        last = np.searchsorted(marks[:, 0], ordinals, side="right") - 1
        least = 1 if self._context.log.steps.met else 0
        micro = marks[last, 2]
        del self._marks[:-1]
        return np.maximum(marks[last, 1], least), np.where(phases == OPTIMIZER, np.maximum(micro, 1), micro + 1)

    def _tables(self) -> bool:
        """Write the lines of the tables that are new; whether all of them are there."""
        known: dict[str, Iterable[str | None]] = {
            layout.OPERATORS: (getattr(o, "name", None) for o in self._new(layout.OPERATORS, list(self._operators))),
            layout.NODES: (getattr(n, "__name__", None) for n in self._new(layout.NODES, list(self._nodes))),
            layout.MODULES: self._new(layout.MODULES, self._context.names.paths()),
        }
        lines = {table: [text_line(self._writer.name(table, n)) for n in names] for table, names in known.items()}
        numbers = range(len(self._context.sites))
        lines[layout.SITES] = [self._site_line(number) for number in self._new(layout.SITES, numbers)]
        return all(self._append(table, new) for table, new in lines.items())

    def _new(self, table: str, known: Sequence[T]) -> Sequence[T]:
        return known[self._written[table] :]

    def _append(self, table: str, lines: list[str]) -> bool:
        done = self._writer.append(table, lines)
        self._written[table] += len(lines) if done else 0
        return done

    def _site(self, number: int) -> Site | None:
        return self._context.sites.resolve(number, None)[0]

    def _site_line(self, number: int) -> str:
        site, library = self._context.sites.resolve(number, None)
        if site is None:
            return "null"
        private = self._writer.private
        return written(SiteLine(site=private(site), library_site=None if library is None else private(library)))


class _Numbers(dict[Any, int]):
    """Numbers of objects, given in the order in which they are met."""

    def __init__(self, known: Iterable[Any] = ()) -> None:
        super().__init__()
        for value in known:
            self[value] = len(self)

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number
