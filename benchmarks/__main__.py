"""``python -m benchmarks``: one table of what each way to look costs."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import whynan
from benchmarks.contenders import contenders
from benchmarks.guards import RefusedError, check
from benchmarks.memory import long_run, peak
from benchmarks.programs import PROGRAMS, QUICK, Program
from benchmarks.timing import compare

MEMORY_TARGET = 1.3


def main(arguments: list[str] | None = None) -> int:
    """Check, time, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small programs, few rounds: seconds, and no claim")
    parser.add_argument("--rounds", type=int, help="rounds of every contender (default 15; 3 with --quick)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only programs whose name contains this")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    programs = [p for p in (QUICK if options.quick else PROGRAMS) if options.only in p.name]
    rounds = options.rounds or (3 if options.quick else 15)
    console = Console(width=110)
    figures: dict[str, Any] = {"versions": _versions(), "programs": []}
    console.print(_heading(figures["versions"]), highlight=False)
    for program in programs:
        try:
            events = check(program.build, whynan.trace)
            check(program.build, lambda: whynan.trace(ranges=True))
        except RefusedError as refused:
            console.print(f"{program.name} is not timed: {refused}", style="red", highlight=False)
            return 1
        bare, ratios = compare(program.build, contenders(), rounds)
        number = (QUICK if options.quick else PROGRAMS).index(program)
        memory = {way: peak(number, quick=options.quick, traced=way == "traced") for way in ("bare", "traced")}
        console.print(_table(program, events, bare, ratios, memory))
        figures["programs"].append(
            {
                "name": program.name,
                "events": events,
                "bare_ms": bare,
                "ratios": {r.contender: [r.median, r.low, r.high] for r in ratios},
                "peak_mib": memory,
            }
        )
    length = 20_000 if options.quick else 1_000_000
    costs, grown = long_run(length)
    figures["long_run"] = {"events": length, "us_per_event": costs, "grown_mib": grown}
    console.print(
        f"{length:,} events in one trace: {costs[1]:.1f} us an event in the second tenth, {costs[-1]:.1f} in the last; "
        f"{grown:+.1f} MiB after the first tenth",
        highlight=False,
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def _versions() -> dict[str, str]:
    found = {"date": datetime.date.today().isoformat(), "python": platform.python_version(), "cpu": _cpu()}
    for name in ("whynan", "torch", "transformers", "torchlens"):
        try:
            found[name] = version(name)
        except ModuleNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _heading(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in versions.items()) + ", one thread"


def _table(program: Program, events: int, bare: float, ratios: list[Any], memory: dict[str, float]) -> Table:
    title = f"{program.name}: {events:,} events, bare step {bare:.1f} ms"
    table = Table(title=title, title_justify="left", caption_justify="left")
    for name in ("contender", "x bare", "quartiles", "target"):
        table.add_column(name, justify="left" if name == "contender" else "right")
    targets = {"whynan.trace": program.traced, "whynan.trace, ranges": program.ranged}
    for ratio in ratios:
        target = targets.get(ratio.contender)
        shown = "" if target is None else f"{target:.2f} {'met' if ratio.median <= target else 'missed'}"
        table.add_row(ratio.contender, f"{ratio.median:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}", shown)
    grew = memory["traced"] / memory["bare"] if memory["bare"] > 0 else float("nan")
    word = "met" if grew <= MEMORY_TARGET else "missed"
    table.caption = (
        f"peak memory of the steps: bare {memory['bare']:.0f} MiB, traced {memory['traced']:.0f} MiB, "
        f"{grew:.2f}x (target {MEMORY_TARGET} {word})"
    )
    return table


if __name__ == "__main__":
    sys.exit(main())
