"""A large captured input cut down to the rows and columns where original and repaired differ."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from whynan.verify.cases import Case, cases_of
from whynan.verify.comparing import disputed
from whynan.verify.tensors import array_of, tensors_in, with_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

_LARGE: Final = 8
"""A dimension of so many is left whole."""
_EACH: Final = 2
_KEPT: Final = (6, 7)
"""Of larger ones, so many places where the two differ are kept, and so many in all."""


def cut_down(original: Callable[..., Any], case: Case, new: Mapping[str, Any], seed: int) -> Case | None:
    """The case with few places of each large dimension, dimensions of one size alike; bad and differing ones first.

    None where the original does not take it so.
    """
    tensors = tensors_in(case.sample.arguments)
    sizes = {n for t in tensors.values() for n in t.shape if n > _LARGE}
    places = {n: _places(n, case, new) for n in sizes}
    small = {name: _taken(t, places) for name, t in tensors.items()}
    behind = case.cotangents if case.given and case.cotangents else None
    cotangent = None if behind is None else tuple(None if c is None else _taken(c, places) for c in behind)
    sample = replace(case.sample, arguments=with_tensors(case.sample.arguments, small), cotangent=cotangent)
    try:
        found = next(iter(cases_of(original, sample, seed)), None)
    except Exception:
        return None
    return found and replace(found, usual=case.usual, elsewhere=case.elsewhere)


def _places(size: int, case: Case, new: Mapping[str, Any]) -> Any:
    """Which places along dimensions of a size to keep."""
    bad, other, greatest = list[int](), list[int](), list[int]()
    for name, (old, dtype) in case.old.items():
        for found, mask in ((bad, ~np.isfinite(old)), (other, disputed(old, new[name], dtype))):
            for axis, length in enumerate(old.shape):
                if length == size:
                    there = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
                    found += there[:: max(1, len(there) // _EACH)][:_EACH].tolist()
    for tensor in tensors_in(case.sample.arguments).values():
        greatest += _outstanding(tensor, size)
    # what is bad may be so for the greatest of its row; and some that nothing is known of: what is healthy stays
    chosen = [each for of in (bad, greatest, other) for each in [*dict.fromkeys(of)][:_EACH]]
    chosen = [*[*dict.fromkeys([*chosen, *bad])][: _KEPT[0]], *range(size)]
    return np.array(sorted([*dict.fromkeys(chosen)][: _KEPT[1]]))


def _outstanding(tensor: Tensor, size: int) -> list[int]:
    """Where along a dimension of a size a tensor has its greatest and least number."""
    if not tensor.is_floating_point() or size not in tensor.shape or not tensor.numel():
        return []
    array = np.nan_to_num(array_of(tensor))
    axis = tensor.shape.index(size)
    return [int(np.unravel_index(f(array), array.shape)[axis]) for f in (np.argmax, np.argmin)]


def _taken(tensor: Tensor, places: Mapping[int, Any]) -> Tensor:
    found = tensor.detach()
    for axis, size in enumerate(tensor.shape):
        if size in places:
            found = found.index_select(axis, torch.from_numpy(places[size]).to(found.device))
    if found.is_floating_point() or found.dtype is torch.bool:
        return found
    largest = int(found.max()) if found.numel() else 0
    over = [n for n in sorted(places) if largest < n]
    return found % len(places[over[0]]) if over and largest >= len(places[over[0]]) else found
