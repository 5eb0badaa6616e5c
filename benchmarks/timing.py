"""Times in rounds: every way to look takes its turn in each, and only ratios within a round are compared."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.contenders import (
    BARE,
    DEFERRED,
    EMPTY,
    FITTED_WATCHED,
    RANGED,
    TRACED,
    TRACED_WITHOUT,
    WATCHED,
    WATCHED_WITHOUT,
    Contender,
)
from benchmarks.guards import RefusedError
from benchmarks.programs import Program
from benchmarks.workers import Outcome, StoppedError, Worker


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of the ratios to the base's step of the same round: a bare one, or a bare fit's."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One way to look: its ratios to a bare step and to one under an empty mode, and its outcome; or why it stopped."""

    name: str
    ratio: Ratio | None
    outcome: Outcome | None
    stopped: str | None = None
    over_empty: Ratio | None = None


@dataclass(frozen=True)
class Comparison:
    """One program under every way to look; `events` and `bare_ms` are those of one step."""

    program: str
    events: int
    bare_ms: float
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row:
        """The row of that name; raises ``KeyError``."""
        return {r.name: r for r in self.rows}[name]


def compare(timed: Program, ways: Sequence[Contender], rounds: int, events: int) -> Comparison:
    """Take rounds; raises ``RefusedError`` if what was timed turns out not to have been the whole work.

    CPU time of each process on one thread: what else runs on the machine is not counted, but it does disturb. On a
    device it is the time on the wall.
    """
    workers = [Worker(way, timed) for way in ways]
    try:
        return _rounds(timed, ways, workers, rounds, events)
    finally:
        for worker in workers:
            worker.end()


def _rounds(timed: Program, ways: Sequence[Contender], workers: list[Worker], rounds: int, events: int) -> Comparison:
    times: dict[str, list[float]] = {w.name: [] for w in workers}
    stopped: dict[str, str] = {}
    for worker in workers:  # all have started and are warm before anything is timed
        _turn(worker, 1, [], stopped)
    for number in range(rounds):
        first = number % len(workers)  # nobody always follows the same neighbour
        for worker in (*workers[first:], *workers[:first]):
            if worker.name not in stopped:
                _turn(worker, timed.steps, times[worker.name], stopped)
    if BARE in stopped:
        raise RefusedError(f"the bare step stopped: {stopped[BARE]}")
    bases = {way.name: BARE if way.base in stopped else way.base for way in ways}
    rows = tuple(
        _row(worker, times[worker.name], times[bases[worker.name]], times.get(EMPTY), stopped.get(worker.name))
        for worker in workers
    )
    compared = Comparison(timed.name, events, statistics.median(times[BARE]) * 1e3, rows)
    same_work(compared, exact=timed.device == "cpu")
    return compared


def _turn(worker: Worker, steps: int, times: list[float], stopped: dict[str, str]) -> None:
    try:
        times.append(worker.turn(steps))
    except StoppedError as error:
        stopped[worker.name] = str(error)


def _row(worker: Worker, times: list[float], base: list[float], empty: list[float] | None, stopped: str | None) -> Row:
    if stopped is not None:
        return Row(worker.name, None, None, stopped)
    try:
        outcome = worker.close()
    except StoppedError as error:
        return Row(worker.name, None, None, str(error))
    over_empty = None if empty is None else _ratio(times, empty)
    return Row(worker.name, _ratio(times, base), outcome, over_empty=over_empty)


def _ratio(times: list[float], base: list[float]) -> Ratio:
    return quartiles([t / b for t, b in zip(times, base, strict=True)])


def quartiles(ratios: Sequence[float]) -> Ratio:
    """The median and, of more than one, the quartiles."""
    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Ratio(median, low, high)


def same_work(compared: Comparison, *, exact: bool = True) -> None:
    """Every timed step of a trace was covered, found healthy, and left the weights of the bare run, bit by bit.

    Not `exact`: the program's own steps do not give the same bits twice, as kernels of a device may not.
    """
    bare = compared.row(BARE).outcome
    assert bare is not None
    traced = (TRACED, RANGED, TRACED_WITHOUT)
    looking = [r for r in compared.rows if r.name in (*traced, WATCHED, DEFERRED, WATCHED_WITHOUT, FITTED_WATCHED)]
    for row in looking:
        name = row.name
        if row.outcome is None:
            raise RefusedError(f"{name} stopped: {row.stopped}")
        expected = compared.events * row.outcome.steps
        # a watch looks at steps
        if name in traced and row.outcome.events != expected:
            raise RefusedError(f"{name} covered {row.outcome.events} of {expected} timed events")
        if row.outcome.verdict != "clean":
            raise RefusedError(f"{name} called the timed steps {row.outcome.verdict}")
        if exact and row.outcome.weights != bare.weights:
            raise RefusedError(f"{name} left other weights than the bare steps")
