"""Peak memory, each in a process of its own, and a million events in one trace."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import torch

import whynan
from benchmarks.programs import PROGRAMS, QUICK

STEPS = 3


def peak(program: int, *, quick: bool, traced: bool) -> float:
    """Peak memory in MiB of some steps, over that of the same process before the first."""
    command = [sys.executable, "-m", "benchmarks.memory", str(program), str(int(quick)), str(int(traced))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _measure(program: int, *, quick: bool, traced: bool) -> float:
    step = (QUICK if quick else PROGRAMS)[program].build()
    with whynan.trace():
        torch.ones(1).add(1)
    before = _resident()
    if traced:
        with whynan.trace():
            for _ in range(STEPS):
                step()
    else:
        for _ in range(STEPS):
            step()
    return _peak() - before


def _resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def long_run(events: int, parts: int = 10) -> tuple[list[float], float]:
    """Microseconds an event in each part of one long trace, and by how many MiB the process grew after the first."""
    costs: list[float] = []
    grown = 0.0
    x = torch.ones(64)
    with whynan.trace():
        for part in range(parts):
            start = time.process_time()
            for _ in range(events // parts // 2):
                y = x * 0.5
                x = y + 0.5
            costs.append((time.process_time() - start) / (events // parts) * 1e6)
            if part == 0:
                grown = _resident()
    return costs, _resident() - grown


if __name__ == "__main__":
    number, quick_, traced_ = (int(a) for a in sys.argv[1:])
    print(_measure(number, quick=bool(quick_), traced=bool(traced_)))
