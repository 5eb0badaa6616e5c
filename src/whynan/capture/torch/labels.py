"""Labels say where a bad element came from; a plane holds one label set per element of a storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from whynan.traces import Birth

PLANE_DTYPE = torch.int32
_FEW_SETS = 512
"""So many sets have a table of their pairs."""


class Labels:
    """All labels of a trace, and the label sets that occur, interned: 0 is the empty set."""

    def __init__(self) -> None:
        self.births: list[Birth | None] = [None]
        self.sets: list[frozenset[int]] = [frozenset()]
        self._ids: dict[frozenset[int], int] = {frozenset(): 0}
        self.literals: set[int] = set()

    def add(self, birth: Birth) -> int:
        """Register a birth or literal; gives the id of the set that holds it alone."""
        birth.label = label = len(self.births)
        self.births.append(birth)
        if birth.label_kind == "literal":
            self.literals.add(label)
        return self.intern(frozenset((label,)))

    def intern(self, labels: frozenset[int]) -> int:
        """The id of a label set; literals beside a birth explain nothing and are dropped."""
        if len(labels) > 1:
            born = labels - self.literals
            labels = born or self._latest(labels)
        found = self._ids.get(labels)
        if found is None:
            found = self._ids[labels] = len(self.sets)
            self.sets.append(labels)
        return found

    def _latest(self, labels: frozenset[int]) -> frozenset[int]:
        """Literals without those that others of them were named after."""
        sources: set[int] = set()
        for label in labels:
            birth = self.births[label]
            if birth is not None:
                sources |= birth.causes
        return labels - sources

    def is_literal(self, set_id: int) -> bool:
        """Whether a set holds literals only."""
        return self.sets[set_id] <= self.literals

    def union(self, first: Tensor, second: Tensor) -> Tensor:
        """Element by element, the union of two planes of one shape."""
        merged = torch.where(first != 0, first, second)
        conflict = (first != 0) & (second != 0) & (first != second)
        if bool(conflict.any()):
            # both in one number, which is looked up where that is not long and sorted where it is
            base = len(self.sets)
            pairs = first[conflict].to(torch.int64) * base + second[conflict]
            if base <= _FEW_SETS:
                distinct = torch.bincount(pairs, minlength=base * base).nonzero().flatten()
                found = torch.zeros(base * base, dtype=PLANE_DTYPE, device=merged.device)
                found[distinct] = self._unions(distinct, base)
                merged[conflict] = found[pairs]
            else:
                distinct, inverse = torch.unique(pairs, return_inverse=True)
                merged[conflict] = self._unions(distinct, base)[inverse]
        return merged

    def _unions(self, pairs: Tensor, base: int) -> Tensor:
        ids = [self.intern(self.sets[pair // base] | self.sets[pair % base]) for pair in pairs.tolist()]
        return torch.tensor(ids, dtype=PLANE_DTYPE, device=pairs.device)

    def present(self, plane: Tensor) -> list[int]:
        """The distinct non-empty set ids of a plane; one pass where there is only one."""
        if plane.numel() == 0:
            return []
        high = int(plane.max())
        if high == 0:
            return []
        positive = torch.where(plane > 0, plane, high)
        low = int(positive.min())
        if low == high:
            return [high]
        if high <= plane.numel():
            return [v for v in torch.bincount(plane.reshape(-1)).nonzero().flatten().tolist() if v]
        return [int(v) for v in torch.unique(plane).tolist() if v > 0]

    def labels_in(self, plane: Tensor) -> frozenset[int]:
        """All labels that occur in a plane."""
        return self.of(self.present(plane))

    def counts(self, plane: Tensor) -> dict[frozenset[int], int]:
        """How many elements of a plane carry each set of labels."""
        return {self.sets[set_id]: int((plane == set_id).sum()) for set_id in self.present(plane)}

    def of(self, set_ids: Iterable[int]) -> frozenset[int]:
        """All labels of some sets."""
        found: frozenset[int] = frozenset()
        for set_id in set_ids:
            found |= self.sets[set_id]
        return found

    def select(self, plane: Tensor, keep: Iterable[int]) -> Tensor:
        """The plane with every set outside `keep` emptied."""
        result = torch.zeros_like(plane)
        for set_id in keep:
            result = torch.where(plane == set_id, plane, result)
        return result
