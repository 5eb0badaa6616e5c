"""Labels say where a bad element came from; a plane holds one label set per element of a storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from whynan.capture.provenance.label_sets import LabelSets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

PLANE_DTYPE = torch.int32
_FEW_SETS = 512
"""So many sets have a table of their pairs."""


class Labels(LabelSets):
    """The labels of a trace on planes of numbers."""

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

    def select(self, plane: Tensor, keep: Iterable[int]) -> Tensor:
        """The plane with every set outside `keep` emptied."""
        result = torch.zeros_like(plane)
        for set_id in keep:
            result = torch.where(plane == set_id, plane, result)
        return result
