"""A long trace: what an event costs in each tenth of it, and what memory it holds at the end of each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

import whynan
from benchmarks.contenders import Empty
from benchmarks.guards import RefusedError, same_events
from benchmarks.resident import resident
from benchmarks.workers import answers, reply, start

PARTS = 10


@dataclass(frozen=True)
class Long:
    """Microseconds an event in each tenth, and resident MiB after each, of one trace of that many events."""

    name: str
    events: int
    us_per_event: tuple[float, ...]
    resident_mib: tuple[float, ...]

    @property
    def slowed(self) -> float:
        """The cost of an event in the last tenth, to that in the first."""
        return self.us_per_event[-1] / self.us_per_event[0]

    @property
    def grown_mib(self) -> float:
        """How much the process grew after the first tenth."""
        return self.resident_mib[-1] - self.resident_mib[0]


def _finite(x: Tensor) -> Tensor:
    return x * 0.5 + 0.5


def _masked(x: Tensor) -> Tensor:
    hidden = torch.full((8, 8), float("-inf")).triu(1)
    return (x + hidden).softmax(-1)


LOOPS: dict[str, Callable[[Tensor], Tensor]] = {"finite": _finite, "-inf masks": _masked}


def long_run(name: str, events: int) -> Long:
    """One trace of at least that many events, in a process of its own; raises ``RefusedError`` if it missed one."""
    process = start("benchmarks.length", name, str(events))
    line, _ = process.communicate()
    answer = json.loads(line) if line else {"stopped": f"the process ended with status {process.returncode}"}
    if "stopped" in answer:
        raise RefusedError(answer["stopped"])
    return Long(**{key: tuple(value) if isinstance(value, list) else value for key, value in answer.items()})


def _run(name: str, events: int) -> dict[str, Any]:
    body, x = LOOPS[name], torch.ones(8, 8)
    with Empty() as empty:
        x = body(x)
    turns = -(-events // (PARTS * empty.events))
    costs: list[float] = []
    held: list[float] = []
    with whynan.trace() as traced:
        for _ in range(PARTS):
            start = time.process_time()
            for _ in range(turns):
                x = body(x)
            costs.append((time.process_time() - start) / (turns * empty.events) * 1e6)
            held.append(resident())
    same_events(traced.report, turns * PARTS * empty.events)
    return asdict(Long(name, turns * PARTS * empty.events, tuple(costs), tuple(held)))


if __name__ == "__main__":
    parent = answers()
    torch.set_num_threads(1)
    reply(lambda: _run(sys.argv[1], int(sys.argv[2])), parent)
