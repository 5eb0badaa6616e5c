"""Programs with a guard of their own on the loss: what stops them is an error, and the change is proved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import forking

pytestmark = pytest.mark.process

FULL = pytest.mark.full
WHYNAN = Path(sys.executable).with_name("whynan")
PROGRAM = """
import math, sys
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def check(loss):
    value = loss.item()
    if math.isnan(value) or math.isinf(value):
        raise FloatingPointError(f"loss is {{value}}")


class Guard:
    def stops(self, loss):
        return bool(torch.isnan(loss).any() or torch.isinf(loss).any())


guard = Guard()


class Watchdog:
    stopped = False

    def __call__(self, loss):
        if not math.isfinite(loss.item()):
            self.stopped = True


watchdog = Watchdog()


def main():
    for step in range(12):
        x, y = torch.randn(16, 4), torch.rand(16, 1) + 0.5
        if step == {bad}:
            y[3] = 0.0
        loss = ((model(x) - torch.log(y)) ** 2).mean()  # born
{guard}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("done")


main()
"""
GUARDS = {
    "exit": ("if not math.isfinite(loss.item()):\n    print('stopping')\n    sys.exit(3)", "ends the program", 3),
    "raise": ("if torch.isnan(loss) or torch.isinf(loss):\n    raise ValueError('loss')", "ends the program", 1),
    "assert": ("assert torch.isfinite(loss), 'loss'", "ends the program", 1),
    "check": ("check(loss)", "ends the program", 1),
    "method": ("if guard.stops(loss):\n    break", "leaves its loop", 1),
    "break": ("if not torch.isfinite(loss):\n    break", "leaves its loop", 1),
    "comparison": ("if not (loss < 1e8):\n    break", "leaves its loop", 1),
    "array": ("if not np.isfinite(loss.detach().numpy()):\n    return", "leaves its loop", 1),
    "continue": ("if not math.isfinite(float(loss)):\n    optimizer.zero_grad()\n    continue", "skips the step", 1),
    "flag": ("bad = loss.item() > 1e8\nif bad:\n    break", "leaves its loop", 1),
    "callback": ("watchdog(loss)\nif watchdog.stopped:\n    break", "leaves its loop", 1),
    "after the backward": (
        "optimizer.zero_grad()\nloss.backward()\nif math.isinf(loss.item()):\n    sys.exit(1)\n"
        "optimizer.step()\ncontinue",
        "ends the program",
        1,
    ),
    "second micro-batch": (
        "if not math.isfinite(loss.detach().item()):\n    sys.exit(4)\n(loss / 2).backward()\n"
        "if step % 2 == 0:\n    continue\noptimizer.step()\noptimizer.zero_grad()\ncontinue",
        "ends the program",
        4,
    ),
}
SAMPLE = {("exit", 0), ("break", 5)}
PROGRAMS = sorted((Path(__file__).parents[1] / "programs" / "guards").glob("*.py"))
"""Trainings that stop for their loss, each as its kind of program is written."""
NORM = """
import math, sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(8, 4)
    if step == 4:
        x[2] = 0
    seen = model(x) * (x.abs().sum(1, keepdim=True) > 0)
    loss = seen.pow(2).sum(1).sqrt().mean()  # born
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        {stops}
    optimizer.step()
print("done")
"""


def run(folder: Path, guard: str, bad: int) -> tuple[subprocess.CompletedProcess[str], dict[str, object], list[str]]:
    return told(folder, PROGRAM.format(guard=textwrap.indent(guard, " " * 8), bad=bad))


def told(
    folder: Path, text: str, *options: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, object], list[str]]:
    (folder / "train.py").write_text(text, encoding="utf-8")
    done = forking.run(
        [WHYNAN, "run", *options, "--json", "report.json", "train.py"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "WHYNAN_RAISE_INTERNAL": "1"},
    )
    return done, json.loads((folder / "report.json").read_text(encoding="utf-8")), text.splitlines()


CASES = [(name, bad) for name in GUARDS for bad in (0, 5)]


@pytest.mark.parametrize(
    ("name", "bad"), [case if case in SAMPLE else pytest.param(*case, marks=FULL) for case in CASES]
)
def test_a_guard_that_stops_is_an_error_and_its_change_is_proved(name: str, bad: int, tmp_path: Path) -> None:
    guard, words, status = GUARDS[name]
    done, report, lines = run(tmp_path, guard, bad)
    (finding,) = report["findings"]  # type: ignore[misc]
    assert (done.returncode, report["verdict"], finding["severity"]) == (status, "nonfinite", "error"), done.stderr
    assert lines[finding["site"]["line"] - 1].endswith("# born")
    assert f"{words} because the loss is Inf" in done.stderr
    assert finding["fixes"][0]["verdict"]["status"] == "guarded"
    assert "done" not in done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "program", [p if p.stem == "while_true" else pytest.param(p, marks=FULL) for p in PROGRAMS], ids=lambda p: p.stem
)
def test_a_guard_in_a_loop_of_another_kind_is_an_error(program: Path, tmp_path: Path) -> None:
    done, report, lines = told(tmp_path, program.read_text(encoding="utf-8"), "--no-proof")
    finding = report["findings"][0]  # type: ignore[index]
    assert (report["verdict"], finding["severity"]) == ("nonfinite", "error"), done.stderr
    assert lines[finding["site"]["line"] - 1].endswith("# born")
    assert done.returncode == 1


@pytest.mark.full
@pytest.mark.parametrize("name", [n if n == "method" else pytest.param(n, marks=FULL) for n in GUARDS])
def test_a_guard_that_lets_all_pass_is_clean(name: str, tmp_path: Path) -> None:
    """The twin: the same program, whose losses are finite."""
    done, report, _ = run(tmp_path, GUARDS[name][0], -1)
    assert (done.returncode, done.stdout, report["verdict"]) == (0, "done\n", "clean"), done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("stops", "status", "words"),
    [pytest.param("sys.exit(5)", 5, "ends the program", marks=FULL), ("break", 1, "leaves its loop")],
)
def test_a_program_that_stops_for_the_norm_of_its_gradients_has_an_error(
    stops: str, status: int, words: str, tmp_path: Path
) -> None:
    done, report, lines = told(tmp_path, NORM.format(stops=stops), "--no-proof")
    (finding,) = report["findings"]  # type: ignore[misc]
    assert (done.returncode, report["verdict"], finding["phase"]) == (status, "nonfinite", "backward"), done.stderr
    assert lines[finding["site"]["line"] - 1].endswith("# born")
    assert f"{words} because what it tests of the gradients is NaN" in done.stderr


@pytest.mark.full
def test_a_step_that_is_skipped_for_the_norm_of_its_gradients_is_no_finding(tmp_path: Path) -> None:
    """The twin: what is discarded harms nothing."""
    done, report, _ = told(tmp_path, NORM.format(stops="continue"), "--no-proof")
    assert (done.returncode, done.stdout, report["verdict"]) == (0, "done\n", "clean"), done.stderr
