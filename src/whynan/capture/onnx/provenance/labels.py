"""Label planes: one label set per element of a value; sequences and optionals hand whole planes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whynan.capture.provenance.label_sets import LabelSets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from whynan.capture.onnx.execution import Node, Value


# -- Labels say where a bad element came from; a plane holds one label set per element of a value ----------------------


Plane: TypeAlias = NDArray[np.int32]


@dataclass(slots=True)
class Mark:
    """What is known of a tensor that holds bad elements, or finite ones that are wrong.

    ``plane``: of each bad element the number of its label set. ``taint``: the same of the finite elements that are
    wrong because of a birth. ``shadow``: the bad elements as float64 has them, where that is known.
    """

    plane: Plane | None = None
    taint: Plane | None = None
    shadow: NDArray[np.float64] | None = None
    counts: dict[frozenset[int], int] = field(default_factory=lambda: {})
    """In place of the planes, once no node reads the tensor any more."""
    damaged: dict[frozenset[int], int] = field(default_factory=lambda: {})
    size: int = 0
    """Elements of the tensor, where the planes are gone."""

    @property
    def total(self) -> int:
        """Elements of the tensor."""
        plane = self.taint if self.plane is None else self.plane
        return self.size if plane is None else int(plane.size)


Marks: TypeAlias = "Mark | list[Marks] | None"
"""Of a value: of a tensor, or of each entry of a sequence."""


class Labels(LabelSets):
    """The labels of a trace on planes of numbers."""

    def union(self, first: Plane, second: Plane) -> Plane:
        """Element by element, the union of two planes of one shape."""
        merged = np.where(first != 0, first, second)
        conflict = (first != 0) & (second != 0) & (first != second)
        if conflict.any():
            base = len(self.sets)
            pairs = first[conflict].astype(np.int64) * base + second[conflict]
            distinct, inverse = np.unique(pairs, return_inverse=True)
            ids = [self.intern(self.sets[int(pair) // base] | self.sets[int(pair) % base]) for pair in distinct]
            merged[conflict] = np.array(ids, dtype=np.int32)[inverse]
        return merged.astype(np.int32, copy=False)

    def present(self, plane: Plane) -> list[int]:
        """The distinct non-empty set ids of a plane."""
        if not plane.size:
            return []
        if not any(plane.strides):
            held = int(plane.reshape(-1)[0])
            return [held] if held else []
        high = int(plane.max())
        if high == 0:
            return []
        highest = plane == high
        if np.count_nonzero(highest) == np.count_nonzero(plane):
            # one set and nothing else, as with a mask: no need to sort
            return [high]
        if high <= plane.size:
            return [int(v) for v in np.flatnonzero(np.bincount(plane.reshape(-1))) if v > 0]
        return [int(v) for v in np.unique(plane) if v > 0]

    def select(self, plane: Plane, keep: Iterable[int]) -> Plane:
        """The plane with every set outside `keep` emptied."""
        return np.where(np.isin(plane, list(keep)), plane, np.int32(0)).astype(np.int32, copy=False)


def compact(plane: Plane) -> Plane:
    """A plane that takes no room where every element of it carries the same set."""
    if plane.size and plane.ndim and any(plane.strides):
        first = plane.reshape(-1)[0]
        if bool((plane == first).all()):
            return np.broadcast_to(first, plane.shape)
    return plane


def release_mark(mark: Marks, labels: Labels) -> Marks:
    """What is left of a mark that no node reads any more: counts, in case the value leaves."""
    if isinstance(mark, list):
        return [release_mark(part, labels) for part in mark]
    if mark is None or (mark.plane is None and mark.taint is None):
        return mark
    return Mark(
        counts={} if mark.plane is None else labels.counts(mark.plane),
        damaged={} if mark.taint is None else labels.counts(mark.taint),
        size=mark.total,
    )


def flat(mark: Marks) -> list[Mark]:
    """Every mark of a value, through sequences."""
    if isinstance(mark, list):
        return [one for part in mark for one in flat(part)]
    return [] if mark is None else [mark]


def part_of(mark: Marks, path: tuple[int, ...]) -> Mark | None:
    """The mark of one tensor within a value."""
    for i in path:
        if not isinstance(mark, list) or i >= len(mark):
            return None
        mark = mark[i]
    return None if isinstance(mark, list) else mark


# -- What operators on sequences and optionals do to marks: they hand whole tensors on ---------------------------------


def sequence_marks(node: Node, inputs: Sequence[Value], marks: Sequence[Marks]) -> list[Marks] | None:
    """The marks of the outputs of an operator on sequences; None for every other, and where nothing is marked."""
    if not any(m is not None for m in marks):
        return None
    if node.op == "SequenceConstruct":
        return [list(marks)]
    if node.op in ("Optional", "OptionalGetElement", "Identity") and _whole(inputs, marks):
        return [marks[0]]
    held: Any = inputs[0] if inputs else None
    if not isinstance(held, list):
        return None
    entries = _entries(marks[0], len(held))  # pyright: ignore[reportUnknownArgumentType]
    if node.op == "SequenceAt":
        return [entries[_place(inputs[1], len(entries))]]
    if node.op == "SequenceErase":
        place = _place(inputs[1] if len(inputs) > 1 else None, len(entries), len(entries) - 1)
        return [[*entries[:place], *entries[place + 1 :]]]
    if node.op == "SequenceInsert":
        place = _place(inputs[2] if len(inputs) > 2 else None, len(entries), len(entries))
        return [[*entries[:place], marks[1], *entries[place:]]]
    return None


def _whole(inputs: Sequence[Value], marks: Sequence[Marks]) -> bool:
    return bool(inputs) and bool(marks)


def _entries(mark: Marks, count: int) -> list[Marks]:
    return list(mark) if isinstance(mark, list) else [None] * count


def _place(given: Value, count: int, default: int = 0) -> int:
    if given is None:
        return default
    place = int(np.asarray(given).reshape(-1)[0])
    return place + count if place < 0 else place
