"""The labels of births and literals, and the sets of them that occur, whatever the planes of numbers are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whynan.traces import Birth

Array: TypeAlias = Any
"""Numbers, a mask of truth values, or a plane of labels: one array of the framework's."""


class LabelSets(ABC):
    """All labels of a trace, which count from 1, and the label sets that occur, interned: 0 is the empty set."""

    def __init__(self) -> None:
        self.births: list[Birth] = []
        self.sets: list[frozenset[int]] = [frozenset()]
        self.literals: set[int] = set()
        self._ids: dict[frozenset[int], int] = {frozenset(): 0}

    def add(self, birth: Birth) -> int:
        """Register a birth or literal; gives the id of the set that holds it alone."""
        self.births.append(birth)
        birth.label = len(self.births)
        if birth.label_kind == "literal":
            self.literals.add(birth.label)
        return self.intern(frozenset((birth.label,)))

    def birth(self, label: int) -> Birth:
        """The birth of a label."""
        return self.births[label - 1]

    def only(self, set_id: int) -> Birth:
        """The birth of a set that holds one label."""
        return self.birth(next(iter(self.sets[set_id])))

    def intern(self, labels: frozenset[int]) -> int:
        """The id of a label set; literals beside a birth explain nothing and are dropped."""
        if len(labels) > 1:
            labels = (labels - self.literals) or self._latest(labels)
        found = self._ids.get(labels)
        if found is None:
            found = self._ids[labels] = len(self.sets)
            self.sets.append(labels)
        return found

    def _latest(self, labels: frozenset[int]) -> frozenset[int]:
        """Literals without those that others of them were named after."""
        sources = frozenset(cause for label in labels for cause in self.birth(label).causes)
        return labels - sources

    def is_literal(self, set_id: int) -> bool:
        """Whether a set holds literals only."""
        return self.sets[set_id] <= self.literals

    def labels_of(self, set_ids: Iterable[int]) -> frozenset[int]:
        """All labels of some sets."""
        found: frozenset[int] = frozenset()
        for set_id in set_ids:
            found |= self.sets[set_id]
        return found

    # -- planes: one set id for each element of an array ---------------------------------------------------------

    @abstractmethod
    def union(self, first: Array, second: Array) -> Array:
        """Element by element, the union of two planes of one shape."""

    @abstractmethod
    def present(self, plane: Array) -> list[int]:
        """The distinct non-empty set ids of a plane."""

    @abstractmethod
    def select(self, plane: Array, keep: Iterable[int]) -> Array:
        """The plane with every set outside `keep` emptied."""

    def labels_in(self, plane: Array) -> frozenset[int]:
        """All labels that occur in a plane."""
        return self.labels_of(self.present(plane))

    def counts(self, plane: Array) -> dict[frozenset[int], int]:
        """How many elements of a plane carry each set of labels."""
        return {self.sets[set_id]: int((plane == set_id).sum()) for set_id in self.present(plane)}

    def born(self, plane: Array) -> list[int]:
        """The sets of a plane that hold a birth."""
        return [set_id for set_id in self.present(plane) if not self.is_literal(set_id)]
