"""Each way to look has a process of its own: entered once, as a user would, and run for some steps when its turn comes."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from benchmarks.contenders import Contender, contender
from benchmarks.programs import QUICK, Program, program
from benchmarks.resident import peak, resident

# Forked from a server that has imported torch and run nothing: alike for all, and quick to start.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["benchmarks.contenders"])


class StoppedError(Exception):
    """A way to look ended the program that it looked at."""


@dataclass(frozen=True)
class Outcome:
    """What a worker knows at its end: steps under the look, milliseconds to open and close it, peak memory in MiB.

    `weights` is a digest of the parameters; `events` and `verdict` are a trace's own, else None.
    """

    steps: int
    open_ms: float
    close_ms: float
    peak_mib: float
    weights: str
    events: int | None
    verdict: str | None


class Worker:
    """The parent's hand on one process."""

    def __init__(self, way: Contender, timed: Program) -> None:
        self.name = way.name
        self._pipe, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_serve, args=(theirs, way.name, timed.name), daemon=True)
        self._process.start()
        theirs.close()

    def turn(self, steps: int) -> float:
        """CPU seconds a step, over that many steps after one that is not timed; raises ``StoppedError``."""
        return self._ask(steps)

    def close(self) -> Outcome:
        """Leave the look and end the process; raises ``StoppedError``."""
        outcome = self._ask(None)
        self._process.join()
        return outcome

    def _ask(self, steps: int | None) -> Any:
        try:
            self._pipe.send(steps)
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise StoppedError(f"the process ended with status {self._process.exitcode}") from None
        if isinstance(answer, StoppedError):
            raise answer
        return answer


def _serve(pipe: Connection, way: str, timed: str) -> None:
    """Answer turns with times until None comes, then with the outcome; a failure of the peer is an answer too."""
    _silence()
    torch.set_num_threads(1)
    try:
        _look(pipe, contender(way), program(timed))
    except Exception as error:
        pipe.send(StoppedError(f"{type(error).__name__}: {error}".splitlines()[0][:200]))


def _look(pipe: Connection, way: Contender, timed: Program) -> None:
    for small in QUICK:  # what torch itself loads at first use is nobody's memory
        small.build()()
    before = resident()
    step = timed.build()
    step()
    steps, start = 0, time.process_time()
    with way.look(step) as look:
        opened = time.process_time() - start
        while (asked := pipe.recv()) is not None:
            way.run(step)
            gc.collect()
            start = time.process_time()
            for _ in range(asked):
                way.run(step)
            pipe.send((time.process_time() - start) / asked)
            steps += 1 + asked
        start = time.process_time()
    closed = time.process_time() - start
    report = getattr(look, "report", None)
    pipe.send(
        Outcome(
            steps,
            opened * 1e3,
            closed * 1e3,
            peak() - before,
            _digest(step.model),
            None if report is None else report.coverage.events,
            None if report is None else report.verdict,
        )
    )


def _silence() -> None:
    """Peers print; the table is the parent's."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()
