"""The one table: programs as sections, ways to look as rows, targets beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from benchmarks.badstep import BadStep
from benchmarks.contenders import BARE, RANGED, TRACED, WATCHED
from benchmarks.length import Long
from benchmarks.programs import Program
from benchmarks.timing import Comparison, Row

MEMORY_TARGETS = {TRACED: 1.3, RANGED: 1.3, WATCHED: 1.02}
COLUMNS = (
    *("way to look", "x bare", "quartiles", "target", "x empty", "target", "peak MiB", "x bare", "target"),
    *("of steps", "x bare", "open + close ms"),
)
EXPLAINED = (
    "x bare: CPU time of a step, on a device the time on the wall, median over rounds of the ratio to the bare step of "
    "the same round, in Lightning to its own; x empty: the same to the step under an empty dispatch mode; peak: of the "
    "whole process; of steps: what of it came after torch was loaded and warm"
)
WIDTH = 176


def table(
    versions: Mapping[str, str],
    compared: Sequence[tuple[Program, Comparison]],
    bad: Sequence[BadStep],
    long: Sequence[Long],
) -> Table:
    """Everything that was measured; a ratio is a median over rounds."""
    shown = Table(
        title=Text(", ".join(f"{name} {value}" for name, value in versions.items())),
        caption=Text(
            "\n".join((EXPLAINED, *_stops(compared), *map(_reported, bad), *(_sentence(run) for run in long)))
        ),
        title_justify="left",
        caption_justify="left",
        width=WIDTH,
    )
    for number, name in enumerate(COLUMNS):
        shown.add_column(name, justify="right" if number else "left", no_wrap=True)
    for program, comparison in compared:
        shown.add_row(Text(program.name, style="bold"))
        shown.add_row(Text(f"{comparison.events:,} events, bare {comparison.bare_ms:.1f} ms", style="bold"))
        for row in comparison.rows:
            shown.add_row(*(Text(cell) for cell in cells(program, comparison, row)))
        shown.add_section()
    return shown


def cells(program: Program, comparison: Comparison, row: Row) -> tuple[str, ...]:
    """One row of the table; in place of figures it says that a way to look stopped."""
    if row.ratio is None or row.outcome is None:
        return (f"  {row.name}", "stopped")
    bare = comparison.row(BARE).outcome
    assert bare is not None
    target = {TRACED: program.traced, RANGED: program.ranged, WATCHED: program.watched}.get(row.name)
    limit = MEMORY_TARGETS.get(row.name) if target is not None else None
    peak = _over(row.outcome.peak_mib, bare.peak_mib)
    return (
        f"  {row.name}",
        f"{row.ratio.median:.2f}",
        f"{row.ratio.low:.2f} to {row.ratio.high:.2f}",
        against(row.ratio.median, target),
        "" if row.over_empty is None else f"{row.over_empty.median:.2f}",
        "" if row.over_empty is None or row.name != TRACED else against(row.over_empty.median, program.over_empty),
        f"{row.outcome.peak_mib:.0f}",
        f"{peak:.2f}",
        against(peak, limit),
        f"{row.outcome.grown_mib:.0f}",
        f"{_over(row.outcome.grown_mib, bare.grown_mib):.2f}",
        f"{row.outcome.open_ms:.1f} + {row.outcome.close_ms:.1f}",
    )


def _over(value: float, base: float) -> float:
    return value / base if base else math.nan


def _stops(compared: Sequence[tuple[Program, Comparison]]) -> list[str]:
    """Why a way to look has no figures: some end a healthy program."""
    return [
        f"{row.name} stopped {program.name}: {row.stopped[:80]}"
        for program, comparison in compared
        for row in comparison.rows
        if row.stopped is not None
    ]


def against(value: float, target: float | None) -> str:
    """A target and whether the value keeps to it; what could not be measured does not."""
    if target is None:
        return ""
    return f"{target:.2f} {'met' if value <= target else 'missed'}"


def _reported(bad: BadStep) -> str:
    return (
        f"from a bad step of {bad.program} to its report: {bad.reported:.2f} s, a bare step {bad.bare:.3f} s "
        f"(target 10 of those and 2 s: {against(bad.reported, bad.target)})"
    )


def _sentence(run: Long) -> str:
    return (
        f"{run.events:,} events in one trace, {run.name}: {run.us_per_event[0]:.1f} us an event in the first tenth, "
        f"{run.us_per_event[-1]:.1f} in the last ({run.slowed:.2f}x); {run.grown_mib:+.1f} MiB since the first tenth"
    )
