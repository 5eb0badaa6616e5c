"""``python -m benchmarks.comparison``: what ``whynan diff`` costs, beside its peers.

Each way to compare two forms of a model has a process of its own, bare runs one thread; they take turns, a ratio is the
median over the rounds of the CPU time to that of loading and running both, in the same round. Every turn opens both
forms anew. What is exported is exported before. torch's ``verify_onnx_program`` compares an export with its program
alone, Polygraphy two ONNX models; it is given all values of both as outputs.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.inference import versions
from benchmarks.resident import peak

BARE, DIFF, VERIFY, POLYGRAPHY = "both, bare", "whynan.diff", "verify_onnx_program", "Polygraphy, all marked"
TARGET, ROUNDS = 4.0, 7
LIGHT = ("SqueezeNet", "ResNet-50")
PROGRAMS = ("residual network", "encoder")
PAIRS = (*LIGHT, *PROGRAMS)
Turn = Callable[[], str]
"""Compare once; what came of it."""


@dataclass
class Row:
    """What one way took on one pair."""

    way: str
    ratios: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peak: float = 0.0
    said: str = ""


# -- The pairs: two forms of an ONNX model, or a torch module and its export -------------------------------------------


def make(folder: str, pair: str) -> None:
    """Write what is compared into a folder."""
    if pair in LIGHT:
        import onnx
        import onnxruntime as ort

        from benchmarks.inference_models import MODELS

        model = next(model for model in MODELS if model.name == pair)
        onnx.save(model.make(), f"{folder}/a.onnx")
        np.save(f"{folder}/x.npy", model.feed())
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = f"{folder}/b.onnx"
        ort.InferenceSession(f"{folder}/a.onnx", options, providers=["CPUExecutionProvider"])
        return
    module, x = program(pair)
    exported(module, x).save(f"{folder}/b.onnx")
    np.save(f"{folder}/x.npy", x.numpy())


def program(pair: str) -> tuple[Any, Any]:
    """A torch module, the same in every process, and its input."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if pair == "encoder":
        layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
        # its fast path is no operation that an exporter knows
        torch.backends.mha.set_fastpath_enabled(False)
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval(), torch.randn(1, 128, 256)

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
            self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.norm2(self.second(torch.relu(self.norm1(self.first(x))))))

    blocks = [Block(64) for _ in range(8)]
    module = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100)
    )
    return module.eval(), torch.randn(1, 3, 112, 112)


def exported(module: Any, x: Any) -> Any:
    """The ONNX program that torch's exporter writes."""
    import torch

    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        return torch.onnx.export(copy.deepcopy(module), (x,), dynamo=True, verbose=False)


# -- The ways to compare -----------------------------------------------------------------------------------------------


def bare(folder: str, pair: str) -> Turn:
    x = np.load(f"{folder}/x.npy")
    if pair in LIGHT:
        return lambda: f"{_session(f'{folder}/a.onnx', x)} and {_session(f'{folder}/b.onnx', x)} outputs"
    import torch

    module, given = program(pair)

    def turn() -> str:
        with torch.no_grad():
            module(given)
        return f"1 and {_session(f'{folder}/b.onnx', x)} outputs"

    return turn


def _session(path: str, x: Any) -> int:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return len(session.run(None, {session.get_inputs()[0].name: x}))


def diff(folder: str, pair: str) -> Turn:
    import whynan

    x = np.load(f"{folder}/x.npy")
    one: Any = f"{folder}/a.onnx" if pair in LIGHT else program(pair)[0]
    return lambda: whynan.diff(one, f"{folder}/b.onnx", [x]).verdict


def verify(_: str, pair: str) -> Turn:
    from torch.onnx.verification import verify_onnx_program

    module, x = program(pair)
    made = exported(module, x)
    return lambda: f"{len(verify_onnx_program(made, (x,), compare_intermediates=True))} values"


def polygraphy(folder: str, _: str) -> Turn:
    from polygraphy import constants  # type: ignore[import-not-found]
    from polygraphy.backend.onnx import BytesFromOnnx, ModifyOutputs, OnnxFromPath  # type: ignore[import-not-found]
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx  # type: ignore[import-not-found]
    from polygraphy.comparator import Comparator, CompareFunc  # type: ignore[import-not-found]

    x = np.load(f"{folder}/x.npy")

    def turn() -> str:
        runners = [
            OnnxrtRunner(SessionFromOnnx(BytesFromOnnx(ModifyOutputs(OnnxFromPath(path), constants.MARK_ALL))), path)
            for path in (f"{folder}/a.onnx", f"{folder}/b.onnx")
        ]
        name = _input(f"{folder}/a.onnx")
        found = Comparator.run(runners, data_loader=[{name: x}])
        compared = Comparator.compare_accuracy(found, compare_func=CompareFunc.simple(rtol=1e-3, atol=1e-5))
        return "agree" if bool(compared) else "differ"

    return turn


def _input(path: str) -> str:
    import onnx

    return onnx.load(path, load_external_data=False).graph.input[0].name


WAYS: dict[str, Callable[[str, str], Turn]] = {BARE: bare, DIFF: diff, VERIFY: verify, POLYGRAPHY: polygraphy}


def ways_of(pair: str) -> list[str]:
    """Those that can compare a pair."""
    if pair in LIGHT:
        return [BARE, DIFF] + ([POLYGRAPHY] if find_spec("polygraphy") else [])
    return [BARE, DIFF, VERIFY]


# -- Turns -------------------------------------------------------------------------------------------------------------


class _Worker:
    def __init__(self, folder: str, pair: str, way: str) -> None:
        self.row = Row(way)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.comparison", "--worker", folder, pair, way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.turn()

    def turn(self) -> float:
        """CPU seconds of a turn."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"said": "stopped", "cpu": NaN, "peak": NaN}')
        self.row.said, self.row.peak = answer["said"], answer["peak"]
        return answer["cpu"]

    def close(self) -> Row:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        return self.row


def measure(folder: str, pair: str, rounds: int) -> list[Row]:
    """All ways on one pair, bare first."""
    workers = [_Worker(folder, pair, way) for way in ways_of(pair)]
    for _ in range(rounds):
        times = [worker.turn() for worker in workers]
        for worker, taken in zip(workers, times, strict=True):
            worker.row.seconds.append(taken)
            worker.row.ratios.append(taken / times[0])
    return [worker.close() for worker in workers]


def work(folder: str, pair: str, way: str) -> None:
    """Compare as often as a line comes."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
    turn = WAYS[way](folder, pair)
    for _ in sys.stdin:
        began = time.process_time()
        said = turn()
        taken = time.process_time() - began
        answers.write(json.dumps({"said": said, "cpu": taken, "peak": peak()}) + "\n")


def table(found: dict[str, list[Row]]) -> Table:
    """Everything that was measured."""
    title = ", ".join(f"{name} {value}" for name, value in versions().items())
    said = f"wanted of whynan.diff: at most {TARGET:g} times the CPU time of both bare runs"
    shown = Table(title=Text(title), caption=Text(said), title_justify="left", caption_justify="left")
    for i, name in enumerate("way|CPU ms|x bare|peak MiB|x bare|result".split("|")):
        shown.add_column(name, justify="right" if 0 < i < 5 else "left")
    for pair, rows in found.items():
        shown.add_row(Text(pair, style="bold"))
        for row in rows:
            shown.add_row(
                f"  {row.way}",
                f"{statistics.median(row.seconds) * 1e3:.0f}",
                f"{statistics.median(row.ratios):.1f}",
                f"{row.peak:.0f}",
                f"{row.peak / rows[0].peak:.2f}",
                row.said,
            )
        shown.add_section()
    return shown


def main(arguments: list[str] | None = None) -> int:
    """Make the pairs, let all ways take turns, print; 1 where the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--worker", nargs=3, metavar=("FOLDER", "PAIR", "WAY"), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", metavar="TEXT", default="", help="only pairs whose name contains this")
    options = parser.parse_args(arguments)
    if options.worker:
        work(*options.worker)
        return 0
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="comparison-") as home:
        for pair in (pair for pair in PAIRS if options.only in pair):
            folder = f"{home}/{pair}"
            Path(folder).mkdir()
            make(folder, pair)
            found[pair] = measure(folder, pair, options.rounds)
    Console(width=130).print(table(found))
    ours = [statistics.median(row.ratios) for rows in found.values() for row in rows if row.way == DIFF]
    return int(max(ours) > TARGET)


if __name__ == "__main__":
    sys.exit(main())
