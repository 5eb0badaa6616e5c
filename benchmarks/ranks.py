"""``python -m benchmarks.ranks``: what a watch costs a step of DistributedDataParallel on two ranks.

All ways to run take turns, each in processes of its own, and only ratios within a turn are compared: of the processor
time of the first rank's process, its threads included. In one process the same model makes the same steps, without the
wrapper. ``skip`` is a run with ``--on-nonfinite skip``, whose
ranks meet before each step: there the clock counts as well, since one waits for the other.
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

ALLOWED = 1.03
"""A step on ranks may cost so much times what the same step does in one process, each as a ratio to itself bare."""
PROGRAM = """
import json, os, sys, time
import torch
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
world, rounds, steps, out = *map(int, sys.argv[1:4]), sys.argv[4]
torch.manual_seed(0)
layers = [torch.nn.Linear(512, 512) if n % 2 == 0 else torch.nn.GELU() for n in range(9)]
model = torch.nn.Sequential(*layers)
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(64, 512)
def turn():
    began = time.process_time(), time.perf_counter()
    for _ in range(steps):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.process_time() - began[0], time.perf_counter() - began[1]
turn()
times = [turn() for _ in range(rounds)]
if int(os.environ.get("RANK", 0)) == 0:
    json.dump(times, open(out, "w"))
if world > 1:
    torch.distributed.destroy_process_group()
"""


@dataclass(frozen=True)
class Times:
    """Seconds of each round of a way to run: of the processor, and by the clock."""

    processor: list[float]
    clock: list[float]


def run(folder: Path, world: int, options: tuple[str, ...] | None, rounds: int, steps: int) -> Times:
    """The times of one start of the program; by whynan where there are options."""
    program, out = folder / "program.py", folder / "times.json"
    program.write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)] if world > 1 else []
    by = [] if options is None else ["-m", "whynan", "run", "--quiet", *options]
    arguments = [str(program), str(world), str(rounds), str(steps), str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
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


def compare(turns: int, rounds: int, steps: int) -> dict[str, Times]:
    """Start every way in turn; the medians of each start."""
    held: dict[str, Times] = {name: Times([], []) for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(turns):
            names = [*WAYS][number % len(WAYS) :] + [*WAYS][: number % len(WAYS)]
            for name in names:
                world, options = WAYS[name]
                made = run(Path(folder), world, options, rounds, steps)
                held[name].processor.append(statistics.median(made.processor) / steps)
                held[name].clock.append(statistics.median(made.clock) / steps)
    return held


def ratio(times: list[float], base: list[float]) -> float:
    """The median of the ratios within a turn."""
    return statistics.median(t / b for t, b in zip(times, base, strict=True))


def main(arguments: list[str] | None = None) -> int:
    """Time and print; 1 where a step on ranks costs more than is allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument("--turns", type=int, default=7, help="starts of every way (default 7)")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds of a start (default 9)")
    parser.add_argument("--steps", type=int, default=10, help="steps of a round (default 10)")
    options = parser.parse_args(arguments)
    held = compare(options.turns, options.rounds, options.steps)
    for name, times in held.items():
        base = held["one process, bare" if name.startswith("one") else "two ranks, bare"]
        print(
            f"{name:22} {statistics.median(times.processor) * 1e3:7.2f} ms of the processor"
            f" {ratio(times.processor, base.processor):6.3f}x"
            f"   {statistics.median(times.clock) * 1e3:7.2f} ms by the clock {ratio(times.clock, base.clock):6.3f}x"
        )
    alone = ratio(held["one process, watched"].processor, held["one process, bare"].processor)
    ranks = ratio(held["two ranks, watched"].processor, held["two ranks, bare"].processor)
    print(f"a watched step on two ranks costs {ranks / alone:.3f}x what it does in one process ({ALLOWED}x allowed)")
    return int(ranks / alone > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
