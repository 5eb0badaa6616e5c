"""``python -m benchmarks``: one table of what each way to look costs."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from rich.console import Console

import whynan
from benchmarks.badstep import BadStep, bad_step
from benchmarks.contenders import installed
from benchmarks.guards import RefusedError, check
from benchmarks.length import LOOPS, Long, long_run
from benchmarks.programs import ON_CUDA, PROGRAMS, QUICK, Program
from benchmarks.table import WIDTH, table
from benchmarks.timing import Comparison, compare


def main(arguments: list[str] | None = None) -> int:
    """Check, time, print; 1 if something was refused, 2 on bad usage."""
    options = _options(arguments)
    torch.set_num_threads(1)
    aside = Console(stderr=True)
    versions = _versions(options.device)
    compared: list[tuple[Program, Comparison]] = []
    bad: list[BadStep] = []
    refused = 0
    for program in options.programs:
        aside.print(f"{program.name} ...", highlight=False)
        try:
            bad.append(bad_step(program))
            compared.append((program, measure(program, options.rounds)))
        except RefusedError as error:
            refused = 1
            aside.print(f"{program.name} is not timed: {error}", style="red", highlight=False, markup=False)
    long: list[Long] = []
    for name in LOOPS if options.device == "cpu" else ():
        aside.print(f"{options.events:,} events in one trace, {name} ...", highlight=False)
        try:
            long.append(long_run(name, options.events))
        except RefusedError as error:
            refused = 1
            aside.print(f"the long trace, {name}, is not timed: {error}", style="red", highlight=False, markup=False)
    Console(width=WIDTH).print(table(versions, compared, bad, long))
    if options.json is not None:
        figures = {
            "versions": versions,
            "rounds": options.rounds,
            "programs": [dataclasses.asdict(c) | _targets(p) for p, c in compared],
            "bad_steps": [dataclasses.asdict(step) for step in bad],
            "long_runs": [dataclasses.asdict(run) for run in long],
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return refused


def measure(program: Program, rounds: int) -> Comparison:
    """First the proof that the timed configuration works, then its times; raises ``RefusedError``."""
    events = check(program.build, whynan.trace)
    check(program.build, lambda: whynan.trace(ranges=True))
    return compare(program, installed(), rounds, events)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small programs, few rounds: seconds, and no claim")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the programs run")
    parser.add_argument("--rounds", type=int, help="turns of every way to look (default 15; 3 with --quick)")
    parser.add_argument("--events", type=int, help="length of the long traces (default 1,000,000; 20,000)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only programs whose name contains this")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    options.rounds = (3 if options.quick else 15) if options.rounds is None else options.rounds
    options.events = (20_000 if options.quick else 1_000_000) if options.events is None else options.events
    if options.rounds < 1 or options.events < 1:
        parser.error("--rounds and --events must be at least 1")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this torch sees no such device")
    known = ON_CUDA if options.device == "cuda" else QUICK if options.quick else PROGRAMS
    options.programs = [p for p in known if options.only in p.name]
    if not options.programs:
        parser.error(f"no program is called {options.only!r}; there are: " + "; ".join(p.name for p in known))
    return options


def _targets(program: Program) -> dict[str, dict[str, float | None]]:
    names = ("traced", "ranged", "watched", "over_empty")
    return {"targets": {name: getattr(program, name) for name in names}}


def _versions(device: str) -> dict[str, str]:
    found = {"date": datetime.date.today().isoformat(), "python": platform.python_version()}
    for name in ("whynan", "torch", "transformers", "torchlens"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    found["cpu"] = f"{_cpu()} x {os.cpu_count()}"
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
    found["threads"] = str(torch.get_num_threads())
    if hasattr(os, "getloadavg"):
        found["load"] = f"{os.getloadavg()[0]:.2f}"
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    sys.exit(main())
