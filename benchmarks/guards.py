"""What is timed is what is tested: first a planted NaN must be found in it, and no event missed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import whynan
from benchmarks.contenders import Empty
from benchmarks.programs import Step

Trace = Callable[[], AbstractContextManager[Any]]


class RefusedError(Exception):
    """A configuration that does not do its work is not timed."""


class _Plant(TorchDispatchMode):
    """Overwrites one element of one event's output: test code that stands for a bug in an operator."""

    def __init__(self, event: int) -> None:
        super().__init__()
        self.event = event
        self.seen = -1
        self.op = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.seen += 1
        if self.seen == self.event:
            out.view(-1)[0] = float("nan")
            self.op = str(func)
        return out


class _Find(TorchDispatchMode):
    """Notes the events whose one output is a matrix product: what they give always reaches the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = -1
        self.found: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        if func in (torch.ops.aten.addmm.default, torch.ops.aten.convolution.default):
            self.found.append(self.seen)
        return func(*args, **(kwargs or {}))


def check(build: Callable[[], Step], trace: Trace) -> int:
    """The number of events of a step; raises ``RefusedError`` where the trace misses an event or a planted NaN."""
    step = build()
    step()
    with Empty() as empty:
        step()
    with trace() as traced:
        step()
    events = traced.report.coverage.events
    if events != empty.events:
        raise RefusedError(f"the trace saw {events} events, an empty mode {empty.events}")
    if traced.report.verdict != "clean":
        raise RefusedError(f"the healthy step is called {traced.report.verdict}")
    with _Find() as find:
        step()
    planted = find.found[len(find.found) // 2]
    # the mode that is entered last is asked first: the planted value lies below the trace, in the operator
    with _Plant(planted) as plant, trace() as traced:
        step()
    findings = traced.report.findings
    if not findings or findings[0].op != _dotted(plant.op) or findings[0].element.index != (0,) * _dims(findings[0]):
        raise RefusedError(f"a NaN planted in {plant.op} was not found: {[f.op for f in findings]}")
    return events


def _dotted(op: str) -> str:
    return op if op.count(".") == 2 else f"{op}.default"


def _dims(finding: whynan.Finding) -> int:
    return len(finding.element.shape)
