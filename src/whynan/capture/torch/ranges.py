"""Counters and finite range of one tensor; never inferred from a minimum or maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.lanes import PHASES
from whynan.capture.torch.planes import FLOAT8
from whynan.records import Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.records import Site


LIMIT = 200_000
Counted = tuple[dict[str, int], float | None, float | None]
"""Counts of special values, and the least and greatest finite element."""


def counters(tensor: Tensor) -> Counted:
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
    tiny = torch.finfo(tensor.dtype).tiny
    # all in one sign, and far from 0: the usual case needs no second pass
    small = 0 if low >= tiny or high <= -tiny else int(torch.count_nonzero(tensor.abs() < tiny))
    zero = n - int(torch.count_nonzero(tensor)) if small else 0
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


class Ranges:
    """The ranges of a trace, kept as plain rows and made into records once, at the end."""

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self.omitted = 0

    def add(
        self, tensor: Tensor, found: Counted | None, event: int, op: str, phase: int, site: int, output: int
    ) -> None:
        """Count one tensor that an event wrote, unless that was done when it was looked at."""
        if len(self._rows) >= LIMIT:
            self.omitted += 1
            return
        self._rows.append(
            (event, op, phase, site, output, tensor.dtype, tuple(tensor.shape), found or counters(tensor))
        )

    def records(self, site_of: Callable[[int], Site | None], since: int = 0) -> tuple[Range, ...]:
        """All of them, or those from one on, as records."""
        return tuple(
            Range(
                event=event,
                op=op,
                phase=PHASES[phase],
                output=output,
                site=site_of(site),
                dtype=str(dtype).removeprefix("torch."),
                shape=tuple(int(s) for s in shape),
                finite_min=found[1],
                finite_max=found[2],
                **found[0],
            )
            for event, op, phase, site, output, dtype, shape, found in self._rows[since:]
        )
