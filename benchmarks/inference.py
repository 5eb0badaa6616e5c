"""``python -m benchmarks.inference``: what it costs to look at every value of an ONNX model, beside its peers.

Each way to look has a process of its own; they take turns, and a ratio is the median over the rounds of the ratio to
the bare session of the same round. A first pass counts every session that is built. Times are by the clock; the CPU
time of the process stands beside them, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.inference_models import MODELS, Model
from benchmarks.inference_ways import BARE, BOUNDED, MARKED, POLYGRAPHY, REFERENCE, SLOW, TRACED

ROOT = Path(__file__).parents[1]
QUICK = 3
ROUNDS = 9
RUNS = 3
"""Runs of a turn."""
BOUND = 1.25
"""Times the peak of the bare process."""
WARM_MEDIAN, WARM_MOST, FIRST, BOUNDED_TIME = 1.5, 2.0, 4.0, 5.0
WIDTH = 150


@dataclass
class Row:
    """What one way took on one model: seconds and bytes; ``warm`` are ratios to the bare session of the same round."""

    way: str
    built: float = 0.0
    first: float = 0.0
    first_cpu: float = 0.0
    warm: list[float] = field(default_factory=list)
    warm_cpu: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peak: int = 0
    values: int = 0
    said: dict[str, Any] = field(default_factory=dict)
    stopped: str | None = None


class _Worker:
    """One way to look at one model, in its process; its first pass is made when it is started."""

    def __init__(self, folder: str, model: Model, way: str, *more: str) -> None:
        self.row = Row(way)
        self._process: subprocess.Popen[str] = _start(folder, model.name, way, *more)
        answer = self._answer()
        for name in ("built", "first", "first_cpu", "values", "peak"):
            setattr(self.row, name, answer.pop(name, getattr(self.row, name)))
        self.row.said = answer

    def turn(self, runs: int) -> tuple[float, float] | None:
        """Seconds of a run, by the clock and of the CPU."""
        if self.row.stopped is not None:
            return None
        answer = self._answer(runs)
        return None if self.row.stopped is not None else (answer["wall"], answer["cpu"])

    def close(self) -> Row:
        """End the process."""
        if self.row.stopped is None:
            self.row.peak = self._answer(0).get("peak", self.row.peak)
        self._process.kill()
        self._process.communicate()
        return self.row

    def _answer(self, asked: int | None = None) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if asked is not None:
            self._process.stdin.write(f"{asked}\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"stopped": f"ended with status {self._process.wait()}"}
        self.row.stopped = answer.pop("stopped", None)
        return answer


def _start(*arguments: str) -> subprocess.Popen[str]:
    """A way to look in a new interpreter, which loads what that way needs and no more."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.inference_ways", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def measure(folder: str, model: Model, rounds: int, *, slow: bool) -> list[Row]:
    """All ways on one model, bare first."""
    names = [BARE, TRACED, MARKED] + ([POLYGRAPHY] if importlib.util.find_spec("polygraphy") else [])
    workers = [_Worker(folder, model, name) for name in names]
    for _ in range(rounds):
        base = workers[0].turn(RUNS)
        for worker in workers[1:]:
            took = worker.turn(RUNS)
            if took is not None and base is not None:
                worker.row.warm.append(took[0] / base[0])
                worker.row.warm_cpu.append(took[1] / base[1])
                worker.row.seconds.append(took[0])
        if base is not None:
            workers[0].row.seconds.append(base[0])
    rows = [worker.close() for worker in workers]
    bound = int(rows[0].peak * BOUND)
    for name in SLOW if slow else (BOUNDED,):
        rows.append(_Worker(folder, model, name, *([str(bound)] if name == BOUNDED else [])).close())
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Make the models, time them, print; 1 where a target is missed."""
    options = _options(arguments)
    aside = Console(stderr=True)
    found: list[tuple[Model, list[Row]]] = []
    with tempfile.TemporaryDirectory(prefix="whynan-bench-") as folder:
        for model in options.models:
            aside.print(f"{model.name} ...", highlight=False)
            onnx.save(model.make(), f"{folder}/{model.name}.onnx")
            found.append((model, measure(folder, model, options.rounds, slow=not options.quick)))
    targets = judged(found)
    Console(width=WIDTH).print(table(found, targets))
    if options.json is not None:
        figures = {"versions": versions(), "models": {m.name: [asdict(r) for r in rows] for m, rows in found}}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return int(any("missed" in line for line in targets))


def judged(found: list[tuple[Model, list[Row]]]) -> list[str]:
    """The targets, each with what came of it."""
    warm: dict[str, float] = {}
    lines: list[str] = []
    for model, rows in found:
        by_way = {row.way: row for row in rows}
        base, ours, bounded = by_way[BARE], by_way[TRACED], by_way[BOUNDED]
        if ours.stopped or bounded.stopped:
            lines.append(f"{model.name}: missed, it stopped: {ours.stopped or bounded.stopped}")
            continue
        warm[model.name] = statistics.median(ours.warm)
        if ours.said.get("bit_equal") is not True or bounded.said.get("bit_equal") is not True:
            lines.append(f"{model.name}: missed, the outputs have not the bits of the bare session's")
        lines.append(f"{model.name}: first pass {_against(ours.first / base.first, FIRST)}")
        peak, time = bounded.peak / base.peak, bounded.first / base.first
        held = f"bounded to {BOUND} of the bare peak: {_against(peak, BOUND)}, in {_against(time, BOUNDED_TIME)}"
        lines.append(f"{model.name}: {held} of the bare time, {bounded.said.get('segments')} segments")
    if warm:
        lines.append(f"warm, median of the models {_against(statistics.median(warm.values()), WARM_MEDIAN)}")
        worst = max(warm, key=lambda name: warm[name])
        lines.append(f"warm, at most ({worst}) {_against(warm[worst], WARM_MOST)}")
    return lines


def _against(value: float, target: float) -> str:
    return f"{value:.2f}x (target {target:g}: {'met' if value <= target else 'missed'})"


def table(found: list[tuple[Model, list[Row]]], targets: list[str]) -> Table:
    """Everything that was measured."""
    title = ", ".join(f"{name} {value}" for name, value in versions().items())
    shown = Table(title=Text(title), caption=Text("\n".join(targets)), title_justify="left", caption_justify="left")
    for i, name in enumerate(
        "way to look|values|build ms|first ms|x bare|warm ms|x bare|x CPU|peak MB|x bare".split("|")
    ):
        shown.add_column(name, justify="right" if i else "left", no_wrap=True)
    for model, rows in found:
        shown.add_row(Text(model.name, style="bold"))
        for row in rows:
            shown.add_row(*(Text(cell) for cell in _cells(row, rows[0])))
        shown.add_section()
    return shown


def _cells(row: Row, base: Row) -> tuple[str, ...]:
    if row.stopped is not None:
        return f"  {row.way}", f"stopped: {row.stopped[:40]}"
    name = row.way
    if row.way == BOUNDED:
        name = f"{row.way}, {row.said.get('segments')} segments"
    warm = f"{statistics.median(row.seconds) * 1e3:.1f}" if row.seconds else ""
    if row.way == REFERENCE and base.seconds:
        once = f"{(row.first - row.built) / statistics.median(base.seconds):.0f}"
        return _numbers(name, row, base, f"{(row.first - row.built) * 1e3:.0f}", once, "")
    ratios = (f"{statistics.median(r):.2f}" if r else "" for r in (row.warm, row.warm_cpu))
    return _numbers(name, row, base, warm, *ratios)


def _numbers(name: str, row: Row, base: Row, warm: str, wall: str, cpu: str) -> tuple[str, ...]:
    return (
        f"  {name}",
        f"{row.values:,}",
        f"{row.built * 1e3:.0f}",
        f"{row.first * 1e3:.0f}",
        f"{row.first / base.first:.2f}",
        warm,
        wall,
        cpu,
        f"{row.peak / 1e6:.0f}",
        f"{row.peak / base.peak:.2f}",
    )


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("whynan", "onnx", "onnxruntime", "numpy", "polygraphy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    found["cores"] = str(os.cpu_count())
    if hasattr(os, "getloadavg"):
        found["load"] = f"{os.getloadavg()[0]:.2f}"
    return found


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, without the slowest peer: no claim")
    parser.add_argument("--rounds", type=int, help=f"turns of every way (default {ROUNDS}; {QUICK} with --quick)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only models whose name contains this")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    options.rounds = (QUICK if options.quick else ROUNDS) if options.rounds is None else options.rounds
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    options.models = [model for model in MODELS if options.only in model.name]
    if not options.models:
        parser.error(f"no model is called {options.only!r}; there are: " + "; ".join(model.name for model in MODELS))
    return options


if __name__ == "__main__":
    sys.exit(main())
