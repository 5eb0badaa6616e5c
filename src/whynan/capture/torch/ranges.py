"""Counters and finite ranges of the tensors that the events of a trace wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.capture.torch.lanes import PHASES
from whynan.models.counting import Counted as Counted
from whynan.models.counting import counters as counters
from whynan.records import Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.records import Site

LIMIT = 200_000


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
