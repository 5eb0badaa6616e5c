"""What the values of an input were in all that was captured: the domain that fresh ones have to keep to."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.floats import format_of
from whynan.verify.tensors import array_of, tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TELLING: Final = 16
"""Fewer values than these say nothing of a domain: four may well be positive by chance."""
_KEPT: Final = 4096
_NEAR: Final = 0.9
"""A value of either sign that comes so near to one is bounded by it; smaller ones are small by chance."""
_ROW: Final = 1e-2
"""How far from 1 a row of probabilities may sum in low precision."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Finite captured values of an input, their root mean square, and what holds for all of them; ``all`` has Inf too.

    ``low`` and ``high`` bound it, the low one itself ``excluded`` where all were greater; ``rows`` of probabilities sum
    to one along the last dimension; ``binary`` ones are a mask as numbers.
    """

    values: Any
    scale: float
    all: Any
    low: float = -np.inf
    high: float = np.inf
    excluded: bool = False
    rows: bool = False
    binary: bool = False

    def within(self, values: Any, dtype: str) -> Any:
        """Values moved into the domain, each keeping its magnitude where it can."""
        known = format_of(dtype)
        if self.low >= 0:
            values = np.abs(values)
        if self.high <= 0:
            values = -np.abs(values)
        if self.high == 1.0:
            # what is large becomes near one, as what is small is near zero
            least = -1.0 if self.low < 0 else 0.0
            size = np.maximum(np.abs(values), 1.0)
            values = np.clip(np.where(size > 1, np.sign(values) * (1 - 1 / size), values), least, 1.0)
        if self.excluded:
            values = np.where(values == 0, known.tiny, values)
        if self.rows and values.ndim:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                total = values.sum(-1, keepdims=True)
                even = np.full_like(values, 1 / max(values.shape[-1], 1))
                values = np.where((total > 0) & np.isfinite(total), values / total, even)
        return values


def domains(visits: Iterable[Mapping[str, Any]]) -> dict[str, Domain]:
    """The domain of each tensor of the captured arguments, by name."""
    arrays: dict[str, list[Any]] = {}
    for arguments in visits:
        for name, tensor in tensors_in(arguments).items():
            if tensor.is_complex():
                continue
            arrays.setdefault(name, []).append(array_of(tensor))
    return {name: _domain(found) for name, found in arrays.items()}


def _domain(arrays: list[Any]) -> Domain:
    flat = np.concatenate([a.reshape(-1) for a in arrays]).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return Domain(np.array([0.0]), 1.0, np.array([0.0]))
    with np.errstate(over="ignore"):
        scale = float(np.sqrt(np.mean(np.square(finite))))
    scale = scale if 0 < scale < np.inf else 1.0
    kept, whole = _thinned(finite), _thinned(flat[~np.isnan(flat)])
    if finite.size < _TELLING:
        return Domain(kept, scale, whole)
    low, high = float(finite.min()), float(finite.max())
    binary = set(np.unique(finite).tolist()) <= {0.0, 1.0}
    bounded = high <= 1 and (low >= 0 or (low >= -1 and max(-low, high) > _NEAR))
    return Domain(
        kept,
        scale,
        whole,
        low=0.0 if low >= 0 else -1.0 if bounded else -np.inf,
        high=1.0 if bounded and high > 0.25 else 0.0 if high <= 0 else np.inf,
        excluded=low > 0,
        rows=low >= 0 and all(_sums_to_one(a) for a in arrays),
        binary=binary and finite.size == flat.size,
    )


def _thinned(values: Any) -> Any:
    return values[:: values.size // _KEPT + 1]


def _sums_to_one(array: Any) -> bool:
    return array.ndim > 0 and array.shape[-1] > 1 and bool(np.all(np.abs(array.sum(-1) - 1) < _ROW))
