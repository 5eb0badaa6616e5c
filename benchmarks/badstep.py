"""From a bad step to its report: what a watch takes to run the step again under full trace and to say what it was."""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

import whynan
from benchmarks.guards import RefusedError
from benchmarks.programs import Program, Step, program
from benchmarks.workers import answers, reply, start

BARE_STEPS = 5
PLANTED = 3e38
"""Close to the largest float32: the product of the last layer exceeds it."""


@dataclass(frozen=True)
class BadStep:
    """Seconds of a bare step, and from the beginning of a bad one to the text of its report, by the clock."""

    program: str
    bare: float
    reported: float
    site: str

    @property
    def target(self) -> float:
        """Ten bare steps and two seconds."""
        return 10 * self.bare + 2.0


def bad_step(timed: Program) -> BadStep:
    """One bad step in a process of its own; raises ``RefusedError`` where it is not explained by a faithful replay."""
    process = start("benchmarks.badstep", timed.name)
    line, _ = process.communicate()
    answer = json.loads(line) if line else {"stopped": f"the process ended with status {process.returncode}"}
    if "stopped" in answer:
        raise RefusedError(answer["stopped"])
    return BadStep(**answer)


def _run(timed: Program) -> dict[str, Any]:
    step = timed.build()
    step()
    times: list[float] = []
    for _ in range(BARE_STEPS):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    with whynan.watch(step.optimizer, quiet=True) as watched:
        train(step)
        plant(step)
        began = time.perf_counter()
        train(step)
    said = str(watched.report)
    seconds = time.perf_counter() - began
    return asdict(BadStep(timed.name, statistics.median(times), seconds, explained(watched.report, said)))


def train(step: Step, steps: int = BARE_STEPS) -> None:
    """Some steps, as a program makes them."""
    for _ in range(steps):
        step()


def plant(step: Step) -> None:
    """Make the weights of the last layer so large that their products overflow."""
    weight = [p for p in step.model.parameters() if p.dim() > 1][-1]
    weight.detach().fill_(PLANTED)


def explained(report: whynan.Report, said: str) -> str:
    """File and line of what was found; raises ``RefusedError`` unless it is faithful, at one line, and said."""
    if not report.run.replay.faithful or not report.findings:
        raise RefusedError(f"the bad step is not explained: {report.verdict}, {report.coverage.notes}")
    # Inf of an overflow, and NaN of two that meet within one product, are two findings of one line
    places = {(f.site.file, f.site.line, f.site.code) for f in report.findings if f.site is not None}
    if len(places) != 1:
        raise RefusedError(f"the bad step is explained at {len(places)} lines")
    ((file, line, code),) = places
    if not file.endswith("programs.py") or str(code) not in said:
        raise RefusedError(f"the bad step is explained at {file}:{line}")
    return f"programs.py:{line}"


if __name__ == "__main__":
    parent = answers()
    torch.set_num_threads(1)
    reply(lambda: _run(program(sys.argv[1])), parent)
