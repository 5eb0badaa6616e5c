"""Events on an accelerator: looked at there, and read together at a sink, so that no operation is waited for.

An event's outputs are summed where they are, in the order of the events; the sums are read once, when something is
about to leave or when what waits has outgrown its budget. Only if one of them is not finite, or if bad elements are
known, are the events explained, in their order, from what their operands still hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from whynan.capture.torch.event_log import WRITER
from whynan.capture.torch.provenance.interventions import map_tensors, tensors_in
from whynan.capture.torch.shadow_memory import FLOAT8, FLOATS, HALVES, end_to_end
from whynan.capture.torch.sites import ACCUMULATION, BACKWARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.event_log import LiveEvent

_functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]

BUDGET: Final = 1 << 30
"""Bytes of outputs that may wait to be looked at."""


class Waiting(NamedTuple):
    """An event with all that explaining it may need, and who had last written its tensors."""

    live: LiveEvent
    writers: list[tuple[Tensor, int]]

    def now(self) -> LiveEvent:
        """The event with the operands that a later one has overwritten, whose values are gone."""
        return self.live._replace(changed_since=frozenset(id(t) for t, writer in self.writers if _writer(t) != writer))


class DeferredChecks:
    """The events of a trace that wait to be looked at.

    `looks_at_all`: whether events are explained whose sums are finite. `explain` is given an event, and the places of
    its outputs that may be bad.
    """

    def __init__(self, looks_at_all: Callable[[], bool], explain: Callable[[LiveEvent, set[int]], None]) -> None:
        self._looks_at_all = looks_at_all
        self._explain = explain
        self.events: list[Waiting] = []
        self._sums: list[Tensor] = []
        self._places: list[tuple[int, int]] = []
        self._unsure: set[tuple[int, int]] = set()
        self._bytes = 0

    def add(self, live: LiveEvent) -> None:
        """Keep an event and start its check.

        The engine moves a gradient only if nobody else holds the tensor: what is new is kept by an alias of its
        storage, and in the backward so are the operands.
        """
        operator, args, written = live.row.operator, live.args, live.written
        if by_alias := live.row.phase in (BACKWARD, ACCUMULATION):
            copies, before = live.before or {}, dict[int, Tensor]()

            def alias(tensor: Tensor) -> Tensor:
                made = tensor.detach()
                if id(tensor) in copies:
                    before[id(made)] = copies[id(tensor)]
                return made

            args = tuple(map_tensors(a, alias) for a in args)
            live = live._replace(before=before)
        if by_alias or not operator.mutable:
            written = [t.detach() for t in written]
        if not operator.uninitialised:
            self._start(len(self.events), written)
        tensors = [t for a in (*args, *live.kwargs.values()) for t in tensors_in(a)]
        live = live._replace(args=args, written=written)
        self.events.append(Waiting(live, [(t, _writer(t)) for t in tensors]))
        self._bytes += sum(t.numel() * t.element_size() for t in written)
        if self._bytes > BUDGET:
            self.run_checks()

    def run_checks(self) -> None:
        """Read the sums, wait for them once, and explain what they say; outside of the program's `torch.func`."""
        if not self.events:
            return
        if _functorch.peek_interpreter_stack() is None:
            self._run_checks()
        else:
            # what is computed inside would be the transform's, as if the program computed it
            with temporarily_clear_interpreter_stack():
                self._run_checks()

    def _run_checks(self) -> None:
        events, sums, places, suspects = self.events, self._sums, self._places, self._unsure
        # first of all: what is read below is read by the program's own doors, which settle too
        self.events, self._sums, self._places, self._unsure, self._bytes = [], [], [], set(), 0
        suspects |= _not_finite(sums, places)
        if not suspects and not self._looks_at_all():
            return
        doubtful: dict[int, set[int]] = {}
        for number, place in suspects:
            doubtful.setdefault(number, set()).add(place)
        for number, event in enumerate(events):
            self._explain(event.now(), doubtful.get(number, set()))

    def _start(self, number: int, written: list[Tensor]) -> None:
        floats = [(i, t) for i, t in enumerate(written) if t.dtype in FLOATS]
        if not floats:
            return
        places = [(number, i) for i, _ in floats]
        try:
            sums = _sums([t for _, t in floats])
        except (RuntimeError, NotImplementedError, TypeError):
            self._unsure.update(places)
            return
        self._sums += sums
        self._places += places


def _not_finite(sums: list[Tensor], places: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """Which outputs of which events have a sum that is not finite; here, once for each device, is waited."""
    found: set[tuple[int, int]] = set()
    by_kind: dict[Any, list[int]] = {}
    for i, total in enumerate(sums):
        by_kind.setdefault((total.device, total.dtype), []).append(i)
    for indices in by_kind.values():
        finite = torch.isfinite(end_to_end([sums[i] for i in indices])).tolist()
        found.update(places[i] for i, fine in zip(indices, finite, strict=True) if not fine)
    return found


def _sums(tensors: list[Tensor]) -> list[Tensor]:
    """One number for each tensor, which is finite only if all its elements are; many tensors in one kernel."""
    if len(tensors) > 1 and all(t.dtype in (torch.float32, torch.float64) for t in tensors):
        return list(torch._foreach_norm(tensors, 1))
    return [_sum(t) for t in tensors]


def _sum(tensor: Tensor) -> Tensor:
    if tensor.dtype in FLOAT8:
        tensor = tensor.float()
    return tensor.sum(dtype=torch.float32) if tensor.dtype in HALVES else tensor.sum()


def _writer(tensor: Tensor) -> int:
    try:
        return getattr(tensor.untyped_storage(), WRITER, -1)
    except (RuntimeError, NotImplementedError):
        return -1
