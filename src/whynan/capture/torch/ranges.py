"""Counters and finite range of one tensor; never inferred from a minimum or maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.planes import FLOAT8
from whynan.records import Range

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.rows import Row


def counters(tensor: Tensor) -> tuple[dict[str, int], float | None, float | None]:
    """Explicit counts of special values, and least and greatest of the finite elements."""
    if tensor.dtype in FLOAT8:
        tensor = tensor.float()
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    n = tensor.numel()
    nothing = {"n_nan": 0, "n_posinf": 0, "n_neginf": 0}
    if n == 0:
        return {"n": 0, **nothing, "n_zero": 0, "n_subnormal": 0}, None, None
    low, high = (v.item() for v in torch.aminmax(tensor))
    magnitude = tensor.abs()
    tiny = torch.finfo(tensor.dtype).tiny
    zero = n - int(torch.count_nonzero(tensor))
    small = int(torch.count_nonzero(magnitude < tiny))
    if high - low == high - low and abs(low) != float("inf") and abs(high) != float("inf"):
        return {"n": n, **nothing, "n_zero": zero, "n_subnormal": small - zero}, low, high
    finite = tensor[torch.isfinite(tensor)]
    counts = {
        "n": n,
        "n_nan": int(torch.isnan(tensor).sum()),
        "n_posinf": int(torch.isposinf(tensor).sum()),
        "n_neginf": int(torch.isneginf(tensor).sum()),
        "n_zero": zero,
        "n_subnormal": small - zero,
    }
    if finite.numel() == 0:
        return counts, None, None
    low, high = (v.item() for v in torch.aminmax(finite))
    return counts, low, high


def range_of(tensor: Tensor, row: Row, phase: Any, first: int) -> Range:
    """The range record of a tensor that an event wrote."""
    counts, low, high = counters(tensor)
    return Range(
        event=row.ordinal - first,
        op=row.operator.name,
        phase=phase,
        output=0,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(int(s) for s in tensor.shape),
        finite_min=low,
        finite_max=high,
        **counts,
    )
