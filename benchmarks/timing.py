"""Times in rounds: every way to look takes its turn in each, and only ratios within a round are compared."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.contenders import Contender
from benchmarks.programs import Step

WARM = 2


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of the ratios to the bare step of the same round."""

    contender: str
    median: float
    low: float
    high: float


def compare(build: Callable[[], Step], contenders: Sequence[Contender], rounds: int) -> tuple[float, list[Ratio]]:
    """Milliseconds of the bare step, and the ratio of each way to look; a peer that fails is left out.

    CPU time of the process: another process on the machine does not count.
    """
    steps = {c.name: build() for c in contenders}
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    for _ in range(rounds):
        for contender in [c for c in contenders if c.name in times]:
            try:
                times[contender.name].append(_one(contender, steps[contender.name]))
            except ValueError:
                # a peer may give up on a healthy program: -inf in a mask is an error to it
                del times[contender.name]
    bare = times[contenders[0].name]
    ratios = [_ratio(name, [t / b for t, b in zip(spent, bare, strict=True)]) for name, spent in times.items()]
    return statistics.median(bare) * 1e3, ratios


def _one(contender: Contender, step: Step) -> float:
    run = contender.run or Step.__call__
    with contender.look(step):
        for _ in range(WARM):
            run(step)
        gc.collect()
        start = time.process_time()
        run(step)
        return time.process_time() - start


def _ratio(name: str, ratios: list[float]) -> Ratio:
    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Ratio(name, median, low, high)
