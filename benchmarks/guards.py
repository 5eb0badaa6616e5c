"""What is timed is what is tested: a planted NaN must be found at its event, and no event missed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import whynan
from benchmarks.contenders import Empty
from benchmarks.programs import Step

Trace = Callable[[], AbstractContextManager[Any]]
PRODUCTS = {
    "forward": ("aten.addmm.default", "aten.convolution.default"),
    "backward": ("aten.mm.default", "aten.convolution_backward.default"),
}
# The third last product of the forward, the third of the backward: deep inside, and nothing later swallows a NaN there.
PLACES = {"forward": -3, "backward": 2}
STEPS = 3


class RefusedError(Exception):
    """A configuration that does not do its work is not timed."""


@dataclass(frozen=True)
class Event:
    """One event by what tells it from all others of its step."""

    op: str
    phase: str
    module: str
    shape: tuple[int, ...]
    step: int


class Planter(TorchDispatchMode):
    """Overwrites the first element of one matrix product or convolution, as a fault of the operator itself would.

    Until `place` is set it only counts. What it says of an event, it knows from PyTorch and not from the trace.
    """

    def __init__(self, model: nn.Module, phase: str) -> None:
        super().__init__()
        self.phase = phase
        self.seen = 0
        self.place: int | None = None
        self.step = 0
        self.planted: Event | None = None
        self._owners = {id(p): name.rpartition(".")[0] for name, p in model.named_parameters()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        node = torch._C._current_autograd_node()
        if str(func) in PRODUCTS[self.phase] and (node is not None) == (self.phase == "backward"):
            if self.seen == self.place:
                first = out if isinstance(out, Tensor) else next(o for o in out if o is not None)
                first.view(-1)[0] = float("nan")
                module = self._owner(args) if node is None else self._owner_behind(node)
                self.planted = Event(str(func), self.phase, module, tuple(first.shape), self.step)
            self.seen += 1
        return out

    def _owner(self, args: Any) -> str:
        # a Linear hands over a transposed view of its weight, but its bias as it is
        return next(self._owners[id(a)] for a in args if id(a) in self._owners)

    def _owner_behind(self, node: Any) -> str:
        behind = [n for n, _ in node.next_functions if n is not None]
        behind += [n for b in behind for n, _ in b.next_functions if n is not None]
        return next(self._owners[id(n.variable)] for n in behind if hasattr(n, "variable"))


def check(build: Callable[[], Step], trace: Trace) -> int:
    """Events of a step; raises ``RefusedError`` if the trace misses one, cries wolf, or misses a planted NaN."""
    step = build()
    step()
    with Empty() as empty:
        for _ in range(STEPS):
            step()
    with trace() as traced:
        for _ in range(STEPS):
            step()
    same_events(traced.report, empty.events)
    for phase in PLACES:
        _check_planted(build(), trace, phase)
    return empty.events // STEPS


def same_events(report: whynan.Report, events: int) -> None:
    """Raises ``RefusedError`` unless the report of healthy steps is clean and covers that many events."""
    if report.coverage.events != events:
        raise RefusedError(f"the trace saw {report.coverage.events} events, an empty mode {events}")
    if report.verdict != "clean":
        raise RefusedError(f"the healthy steps are called {report.verdict}")


def _check_planted(step: Step, trace: Trace, phase: str) -> None:
    planter = Planter(step.model, phase)
    # the mode that is entered last is asked first: the planted value lies below the trace, in the operator
    with planter:
        step()
        products = planter.seen
        with trace() as traced:
            for _ in range(STEPS - 1):
                step()
            planter.place = planter.seen + PLACES[phase] % products
            planter.step = STEPS  # a trace counts the steps that it saw
            step()
    if planter.planted is None:
        raise RefusedError(f"no place in the {phase} to plant a NaN")
    found = [_event(f) for f in traced.report.findings]
    if found != [planter.planted]:
        raise RefusedError(f"planted {planter.planted}, found {found}")


def _event(finding: whynan.Finding) -> Event | None:
    """The event of a finding; None if its element is not the first alone, or its line is not in the programs."""
    site, element = finding.site, finding.element
    if site is None or not site.file.endswith("programs.py") or element.count != 1 or any(element.index or (1,)):
        return None
    return Event(str(finding.op), finding.phase, str(site.module), tuple(element.shape), finding.step or 0)
