"""``python -m benchmarks.once``: what it costs to look at one input of an ONNX model once, the loading included.

``whynan.explain`` and the command ``whynan onnx`` beside a bare session that loads the model and runs it, and beside
onnx's reference evaluator with ``verbose=3``. All take turns in one round; every number is a median over the rounds, a
ratio that of the ratios within a round. Imports are warm: one round is made before, and from the time of the command
that of a process that only imports what it does is taken away. Beside the time by the clock stands that of the CPU, of
all processes, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.inference import versions
from benchmarks.inference_models import MODELS, Model

NAMES = ("SqueezeNet", "ResNet-50", "DenseNet-121")
ROUNDS = 9
SLOW_ROUNDS = 2
"""Of the reference evaluator."""
FIXED, TIMES, FASTER = 0.4, 3.0, 4.0
"""A look may take so many seconds and so many times a bare load and run, and is so much faster than the evaluator."""
_IMPORTS = "import onnx, onnxruntime, whynan.cli.onnx, whynan.run.onnx.inference, whynan.report.terminal"


@dataclass
class Times:
    """Seconds of each round, by the clock or of the CPU; ``command`` and ``imports`` are those of processes."""

    bare: list[float] = field(default_factory=list)
    explain: list[float] = field(default_factory=list)
    command: list[float] = field(default_factory=list)
    imports: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)

    def over(self, taken: list[float]) -> float:
        """Seconds above what is allowed, in the median round; below 0 where the target is met."""
        return statistics.median(t - FIXED - TIMES * b for t, b in zip(taken, self.bare, strict=True))

    @property
    def commands(self) -> list[float]:
        """The times of the command without those of its imports."""
        return [c - i for c, i in zip(self.command, self.imports, strict=True)]


@dataclass
class Figures:
    """What was measured of one model."""

    name: str
    clock: Times = field(default_factory=Times)
    cpu: Times = field(default_factory=Times)


def cpu_seconds() -> float:
    """The CPU time of this process and of all that it started, those that still run included."""
    own = os.times()
    found = own.user + own.system + own.children_user + own.children_system
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(parts[1]) == os.getpid():
            found += sum(map(int, parts[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def measure(model: Model, folder: str, rounds: int) -> Figures:
    """Let all ways take turns on one model."""
    path, inputs = f"{folder}/{model.name}.onnx", f"{folder}/{model.name}.npz"
    made = model.make()
    onnx.save(made, path)
    name = made.graph.input[0].name
    del made
    feed = model.feed()
    np.savez(inputs, **{name: feed})
    ways = _ways(path, inputs, {name: feed})
    figures = Figures(model.name)
    for number in range(rounds + 1):
        for way, run in ways.items():
            if way == "reference" and number > SLOW_ROUNDS:
                continue
            began, used = time.perf_counter(), cpu_seconds()
            run()
            taken, used = time.perf_counter() - began, cpu_seconds() - used
            if number:
                getattr(figures.clock, way).append(taken)
                getattr(figures.cpu, way).append(used)
    return figures


def _ways(path: str, inputs: str, feeds: dict[str, Any]) -> dict[str, Callable[[], None]]:
    import onnxruntime as ort
    from onnx.reference import ReferenceEvaluator

    import whynan

    def bare() -> None:
        ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)

    def explain() -> None:
        assert whynan.explain(path, feeds).verdict == "clean"

    def reference() -> None:
        with redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            ReferenceEvaluator(path, verbose=3).run(None, feeds)

    return {
        "bare": bare,
        "explain": explain,
        "command": lambda: _process("-m", "whynan", "onnx", path, "-i", inputs),
        "imports": lambda: _process("-c", _IMPORTS),
        "reference": reference,
    }


def _process(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def main(arguments: list[str] | None = None) -> int:
    """Make the models, time them, print; 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.once", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", metavar="TEXT", default="", help="only models whose name contains this")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    chosen = [model for model in MODELS if model.name in NAMES and options.only in model.name]
    with tempfile.TemporaryDirectory(prefix="once-") as folder:
        found = [measure(model, folder, options.rounds) for model in chosen]
    Console(width=150).print(table(found))
    if options.json is not None:
        figures = {"versions": versions(), "models": [asdict(figures) for figures in found]}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    clocks = [one.clock for one in found]
    missed = [t for t in clocks if max(t.over(t.explain), t.over(t.commands)) > 0 or _faster(t) < FASTER]
    return int(bool(missed))


def _faster(times: Times) -> float:
    return statistics.median(times.reference) / statistics.median(times.explain)


def table(found: list[Figures]) -> Table:
    """Everything that was measured."""
    title = ", ".join(f"{name} {value}" for name, value in versions().items())
    said = f"allowed: {FIXED:g} s and {TIMES:g} times the bare load and run; {FASTER:g} times the evaluator's speed"
    shown = Table(title=Text(title), caption=Text(said), title_justify="left", caption_justify="left")
    columns = "model|bare s|explain s|x bare|over s|command s|x bare|over s|evaluator s|explain is faster"
    for i, name in enumerate(columns.split("|")):
        shown.add_column(name, justify="right" if i else "left")
    for figures in found:
        shown.add_row(f"{figures.name}, clock", *_cells(figures.clock))
        shown.add_row(f"{figures.name}, CPU", *_cells(figures.cpu))
    return shown


def _cells(times: Times) -> list[str]:
    cells = [f"{statistics.median(times.bare):.3f}"]
    for taken in (times.explain, times.commands):
        ratio = statistics.median(t / b for t, b in zip(taken, times.bare, strict=True))
        cells += [f"{statistics.median(taken):.3f}", f"{ratio:.1f}", f"{times.over(taken):+.3f}"]
    return [*cells, f"{statistics.median(times.reference):.2f}", f"{_faster(times):.1f}"]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    sys.exit(main())
