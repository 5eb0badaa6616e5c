"""Each way to look has a process of its own: entered once, as a user would, and run for some steps at its turn."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import nn

from benchmarks.contenders import Contender, contender
from benchmarks.programs import QUICK, Program, program
from benchmarks.resident import peak, resident

ROOT = Path(__file__).parents[1]


class StoppedError(Exception):
    """A way to look ended the program that it looked at."""


@dataclass(frozen=True)
class Outcome:
    """What a worker knows at its end: steps under the look, milliseconds to open and close it, memory in MiB.

    `peak_mib` is the whole process's, `grown_mib` what of it came after torch was loaded and warm. `weights` is a
    digest of the parameters; `events` and `verdict` are a trace's own, else None.
    """

    steps: int
    open_ms: float
    close_ms: float
    peak_mib: float
    grown_mib: float
    weights: str
    events: int | None
    verdict: str | None


class Worker:
    """The parent's hand on one process; it starts at once and is first waited for at its first turn."""

    def __init__(self, way: Contender, timed: Program) -> None:
        self.name = way.name
        self._process = start("benchmarks.workers", way.name, timed.name)

    def turn(self, steps: int) -> float:
        """Seconds a step by `clock_of`, over that many steps after one that is not timed; raises ``StoppedError``."""
        return self._ask(steps)["seconds"]

    def close(self) -> Outcome:
        """Leave the look and end the process; raises ``StoppedError``."""
        outcome = Outcome(**self._ask(0))
        self._process.wait()
        return outcome

    def end(self) -> None:
        """End the process whatever it is at; nothing happens if it has ended."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, steps: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{steps}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has stopped before, and its last line says why
        line = self._process.stdout.readline()
        if not line:
            raise StoppedError(f"the process ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "stopped" in answer:
            raise StoppedError(answer["stopped"])
        return answer


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    """A module of this package in a new interpreter, with pipes to it; what it writes to stderr is dropped."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def answers() -> IO[str]:
    """The way back to the parent; from here on whatever else is printed, as peers do, is dropped."""
    kept = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    return kept


def reply(answer: Callable[[], dict[str, Any]], to: IO[str]) -> None:
    """One line of JSON: the answer, or what stopped it."""
    try:
        line = answer()
    except Exception as error:
        line = {"stopped": f"{type(error).__name__}: {error}".splitlines()[0]}
    to.write(json.dumps(line) + "\n")


def _look(way: Contender, timed: Program, to: IO[str]) -> dict[str, Any]:
    """Take turns until one of no steps comes."""
    for small in QUICK:  # what torch itself loads at first use is nobody's memory
        small.build()()
    before = resident()
    step = timed.build()
    step()
    clock = clock_of(timed.device)
    steps, began = 0, clock()
    with way.look(step) as look:
        opened = clock() - began
        while asked := int(sys.stdin.readline() or 0):
            way.run(step)
            gc.collect()
            began = clock()
            for _ in range(asked):
                way.run(step)
            to.write(json.dumps({"seconds": (clock() - began) / asked}) + "\n")
            steps += 1 + asked
        began = clock()
    closed = clock() - began
    report = getattr(look, "report", None)
    outcome = Outcome(
        steps=steps,
        open_ms=opened * 1e3,
        close_ms=closed * 1e3,
        peak_mib=peak(),
        grown_mib=peak() - before,
        weights=_digest(step.model),
        events=None if report is None else report.coverage.events,
        verdict=None if report is None else report.verdict,
    )
    return asdict(outcome)


def clock_of(device: str) -> Callable[[], float]:
    """CPU time of this process; of a device that works beside it the time on the wall, when its work is done."""
    if device == "cpu":
        return time.process_time

    def clock() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    parent = answers()
    torch.set_num_threads(1)
    reply(lambda: _look(contender(sys.argv[1]), program(sys.argv[2]), parent), parent)
