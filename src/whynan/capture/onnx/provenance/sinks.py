"""What leaves a graph: how much of it is bad or wrong, and from which births."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whynan.capture.onnx.counts import bad_mask, is_floating, tensors
from whynan.capture.onnx.provenance.labels import flat
from whynan.records import Note
from whynan.traces import Sink
from whynan.traces.facts import STILL_HELD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.capture.onnx.execution import Value
    from whynan.capture.onnx.provenance.labels import Labels, Marks


class GraphSinks:
    """The sinks of a run: the graph's outputs."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self.sinks: list[Sink] = []
        self.unexplained: list[Sink] = []
        self.left = False
        """Whether the run has come to its outputs."""

    def add_output(self, name: str, value: Value, mark: Marks) -> None:
        """An output of the graph."""
        self.left = True
        found = [tensor for _, tensor in tensors(value, ())]
        total = sum(int(tensor.size) for tensor in found)
        bad = sum(int(np.count_nonzero(bad_mask(tensor))) for tensor in found if is_floating(tensor))
        counts, damaged = self._tally(mark)
        if bad:
            carried = frozenset(label for labels in counts for label in labels)
            sink = Sink("output", name, bad, total, carried, True, counts=counts)
            (self.sinks if carried else self.unexplained).append(sink)
        if damaged:
            carried = frozenset(label for labels in damaged for label in labels)
            self.sinks.append(Sink("output", name, sum(damaged.values()), total, carried, True, damage=True))

    def given(self) -> tuple[Note, ...]:
        """What is said where outputs hold what was given, a literal, or a copy of one."""
        outputs: dict[str, None] = {}
        literals: dict[Note, None] = {}
        for sink in self.sinks:
            if not sink.damage:
                births = [self._labels.birth(label) for labels in sink.counts for label in sorted(labels)]
                told = [b.note for b in births if b.label_kind == "literal" and not b.computed and b.note]
                outputs |= dict.fromkeys([sink.name] if told and sink.name else [])
                literals |= dict.fromkeys(told)
        return (Note.create("given", outputs=tuple(outputs), literals=tuple(literals)),) if outputs else ()

    def held(self, marks: Iterable[Marks]) -> list[Sink]:
        """What a run that has come to no end still held: these values, which some node was still to read, or none."""
        found: list[Sink] = []
        for mark in marks:
            counts, _ = self._tally(mark)
            carried = frozenset(label for labels in counts for label in labels)
            if carried:
                total = sum(part.total for part in flat(mark))
                found.append(Sink("observed", STILL_HELD, sum(counts.values()), total, carried, False, counts=counts))
        return found

    def _tally(self, mark: Marks) -> tuple[dict[frozenset[int], int], dict[frozenset[int], int]]:
        """How many elements carry each set of labels, bad ones and wrong ones."""
        counts: dict[frozenset[int], int] = {}
        damaged: dict[frozenset[int], int] = {}
        for part in flat(mark):
            told = dict(part.counts) if part.plane is None else self._labels.counts(part.plane)
            wrong = dict(part.damaged) if part.taint is None else self._labels.counts(part.taint)
            for total, new in ((counts, told), (damaged, wrong)):
                for labels, count in new.items():
                    total[labels] = total.get(labels, 0) + count
        return counts, damaged
