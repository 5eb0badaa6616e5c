"""``python -m benchmarks.ranks``: what a watch costs a step of DistributedDataParallel on two ranks.

All ways to run take turns, each in processes of its own, and only ratios within a turn are compared: of the processor
time of the first rank's process, its threads included. In one process the same model makes the same steps, without the
wrapper. ``skip`` is a run with ``--on-nonfinite skip``, whose ranks meet before each step: there the clock counts as
well, since one waits for the other. The perceptron's step is of a few milliseconds: it shows what a step costs that is
too short to hide it, and carries no target.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.programs import Program, Step, program

ALLOWED = 1.03
"""A watched step on two ranks may cost so much times the bare one."""
PROGRAM = """
import json, os, sys, time
import torch
from torch.nn.parallel import DistributedDataParallel
from benchmarks import ranks
torch.set_num_threads(1)
name, world, rounds, steps, out = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
step = ranks.MODELS[name].build()
if world > 1:
    torch.distributed.init_process_group("gloo")
    step.model = DistributedDataParallel(step.model)
def turn():
    began = time.process_time(), time.perf_counter()
    for _ in range(steps):
        step()
    return time.process_time() - began[0], time.perf_counter() - began[1]
turn()
times = [turn() for _ in range(rounds)]
if int(os.environ.get("RANK", 0)) == 0:
    json.dump(times, open(out, "w"))
if world > 1:
    torch.distributed.destroy_process_group()
"""


class Perceptron(nn.Module):
    """Five linear layers of 512 (1.3 million parameters), to their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(512, 512) if n % 2 == 0 else nn.GELU() for n in range(9)])

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.layers(x).square().mean()
        return loss


def _perceptron() -> Step:
    torch.manual_seed(0)
    model = Perceptron()
    return Step(model, torch.randn(64, 512), torch.optim.AdamW(model.parameters(), lr=1e-4))


MODELS = {
    "transformer": program("transformer (d=256, 8 x 128)"),
    "perceptron": Program("perceptron (5 x 512, 64 rows)", _perceptron, 10),
}


@dataclass(frozen=True)
class Times:
    """Seconds of each round of a way to run: of the processor, and by the clock."""

    processor: list[float]
    clock: list[float]


def run(folder: Path, model: str, world: int, options: tuple[str, ...] | None, rounds: int, steps: int) -> Times:
    """The times of one start of the program; by whynan where there are options."""
    script, out = folder / "program.py", folder / "times.json"
    script.write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)] if world > 1 else []
    by = [] if options is None else ["-m", "whynan", "run", "--quiet", *options]
    arguments = [str(script), model, str(world), str(rounds), str(steps), str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, *launcher, *by, *arguments], env=environment, check=True, capture_output=True)
    processor, clock = zip(*json.loads(out.read_text()), strict=True)
    return Times([*processor], [*clock])


WAYS: dict[str, tuple[int, tuple[str, ...] | None]] = {
    "one process, bare": (1, None),
    "one process, watched": (1, ()),
    "two ranks, bare": (2, None),
    "two ranks, watched": (2, ()),
    "two ranks, skip": (2, ("--on-nonfinite", "skip")),
}


def compare(model: str, turns: int, rounds: int, steps: int) -> dict[str, Times]:
    """Start every way in turn; the medians of each start."""
    held: dict[str, Times] = {name: Times([], []) for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(turns):
            names = [*WAYS][number % len(WAYS) :] + [*WAYS][: number % len(WAYS)]
            for name in names:
                world, options = WAYS[name]
                made = run(Path(folder), model, world, options, rounds, steps)
                held[name].processor.append(statistics.median(made.processor) / steps)
                held[name].clock.append(statistics.median(made.clock) / steps)
    return held


def ratio(times: list[float], base: list[float]) -> float:
    """The median of the ratios within a turn."""
    return statistics.median(t / b for t, b in zip(times, base, strict=True))


def show(model: str, held: dict[str, Times]) -> float:
    """Print a row for each way; what a watched step on two ranks costs, as a ratio of the least times.

    Whatever else the machine does can only add to a time: where starts differ by more than the ratio, the least of each
    way is nearest to what it costs.
    """
    print(MODELS[model].name)
    for name, times in held.items():
        base = held["one process, bare" if name.startswith("one") else "two ranks, bare"]
        print(
            f"  {name:22} {statistics.median(times.processor) * 1e3:7.2f} ms of the processor"
            f" {ratio(times.processor, base.processor):6.3f}x"
            f"   {statistics.median(times.clock) * 1e3:7.2f} ms by the clock {ratio(times.clock, base.clock):6.3f}x"
            f"   least {min(times.processor) / min(base.processor):6.3f}x {min(times.clock) / min(base.clock):6.3f}x"
        )
    return min(held["two ranks, watched"].processor) / min(held["two ranks, bare"].processor)


def main(arguments: list[str] | None = None) -> int:
    """Time and print; 1 where a step of the transformer on ranks costs more than is allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument("--turns", type=int, default=7, help="starts of every way (default 7)")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds of a start (default 9)")
    parser.add_argument("--steps", type=int, help="steps of a round (default 1 of the transformer, 10 of the other)")
    parser.add_argument("--only", choices=MODELS, help="time this model alone")
    options = parser.parse_args(arguments)
    watched = {
        name: show(name, compare(name, options.turns, options.rounds, options.steps or timed.steps))
        for name, timed in MODELS.items()
        if options.only in (None, name)
    }
    for name, cost in watched.items():
        allowed = f" ({ALLOWED}x allowed)" if name == "transformer" else ""
        print(f"a watched step of the {name} on two ranks costs {cost:.3f}x the bare one{allowed}")
    return int(watched.get("transformer", 0) > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
