"""What `whynan run` says of a program that trains, and whose bad number is in none of its steps."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import forking

pytestmark = pytest.mark.process

SAMPLE = ("a number that is read", "masked scores", "two threads that evaluate")
"""Run each time; every run is a process or two that load torch."""
FULL = pytest.mark.full
WHYNAN = Path(sys.executable).with_name("whynan")
TRAINS = """
import ctypes, math, signal, sys, traceback
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def batch(step, bad=()):
    x = torch.rand(8, 4) + 0.1
    if step in bad:
        x[2, 1] = 0
    return x


def fit(steps, bad=(), guard=lambda loss: False):
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = model(torch.log(batch(step, bad))).square().mean()  # born
        if guard(loss):
            continue
        loss.backward()
        optimizer.step()


"""


@dataclass(frozen=True)
class Ran:
    """A run: its exit status, what it wrote, its report, and where the marked expression stands."""

    status: int
    out: str
    err: str
    report: dict[str, Any]
    born: int

    def only(self) -> dict[str, Any]:
        """Its only finding, which is of the marked line."""
        (finding,) = (*self.report["findings"], *self.report["damaging"])
        assert finding["site"]["line"] == self.born
        return finding


def run(folder: Path, rest: str, *options: str) -> Ran:
    """Run a program that trains first under whynan; its last marked line counts."""
    script = folder / "train.py"
    script.write_text(TRAINS + textwrap.dedent(rest), encoding="utf-8")
    lines = script.read_text(encoding="utf-8").splitlines()
    born = max(number for number, line in enumerate(lines, 1) if line.endswith("# born"))
    path = folder / "report.json"
    done = forking.run(
        [WHYNAN, "run", "--json", path, *options, script],
        env={**os.environ, "OMP_NUM_THREADS": "1", "WHYNAN_RAISE_INTERNAL": "1"},
    )
    assert path.exists(), done.stderr
    return Ran(done.returncode, done.stdout, done.stderr, json.loads(path.read_text(encoding="utf-8")), born)


ENDS = {
    "a number that is read": (
        """
        def guard(loss):
            if not math.isfinite(loss.item()):
                print("stopping at", loss.item())
                sys.exit(3)

        fit(6, bad=[4], guard=guard)
        """,
        3,
    ),
    "an assertion": (
        """
        def guard(loss):
            assert not torch.isinf(loss)

        fit(6, bad=[4], guard=guard)
        """,
        1,
    ),
    "an exception": (
        """
        def guard(loss):
            if loss != loss or loss.abs() == math.inf:
                raise FloatingPointError("no number")

        fit(6, bad=[4], guard=guard)
        """,
        1,
    ),
    "an array": (
        """
        def guard(loss):
            if not loss.detach().numpy().max() < 1e9:
                sys.exit("diverged")

        fit(6, bad=[4], guard=guard)
        """,
        1,
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", [n if n in SAMPLE else pytest.param(n, marks=FULL) for n in ENDS])
def test_a_program_that_ends_over_its_bad_loss_is_explained(name: str, tmp_path: Path) -> None:
    rest, status = ENDS[name]
    ran = run(tmp_path, rest)
    finding = ran.only()
    assert ran.status == status
    assert (ran.report["verdict"], finding["step"], finding["rule"]) == ("nonfinite", 4, "WN201")
    assert finding["element"]["index"] == [2, 1]
    assert (ran.report["run"]["replay"]["kind"], ran.report["run"]["replay"]["faithful"]) == ("loop", True)
    assert ran.report["run"]["exit_status"] == {"script": status, "whynan": 1}
    assert "2 steps watched" in ran.err


@pytest.mark.full
def test_a_bad_batch_that_is_passed_over_by_the_program_is_an_error(tmp_path: Path) -> None:
    ran = run(tmp_path, "fit(6, bad=[4], guard=lambda loss: not torch.isfinite(loss))\nprint('done')")
    finding = ran.only()
    assert (ran.status, ran.out, ran.report["verdict"], finding["step"]) == (1, "", "nonfinite", 4)
    assert finding["reaches"][0]["kind"] == "loss"
    assert "skips the step because the loss is Inf" in ran.err


PASSES_OVER = """
def guard(loss):
    value = loss.item()
    if not math.isfinite(value):
        print("skipped", value)
        return True

fit(6, bad=[4], guard=guard)
"""


@FULL
def test_a_program_that_passes_over_a_bad_batch_may_go_on(tmp_path: Path) -> None:
    ran = run(tmp_path, PASSES_OVER, "--on-nonfinite", "continue")
    assert (ran.status, ran.out, ran.report["verdict"]) == (1, "skipped inf\n", "nonfinite")


@pytest.mark.full
@pytest.mark.parametrize(("options", "status"), [((), 0), pytest.param(("--strict",), 1, marks=FULL)])
def test_a_bad_number_that_is_only_printed_is_a_warning(options: tuple[str, ...], status: int, tmp_path: Path) -> None:
    """The twin: a number that was read, and on which nothing is decided."""
    rest = "fit(3)\nprint(torch.log(torch.zeros(1)).item())  # born\nfit(2)"
    ran = run(tmp_path, rest, *options)
    assert (ran.status, ran.out, ran.report["verdict"]) == (status, "-inf\n", "damaged")
    assert ran.only()["severity"] == "warning"


@FULL
def test_what_is_read_after_the_training_is_explained(tmp_path: Path) -> None:
    ran = run(tmp_path, "fit(5)\nprint(model(torch.log(torch.zeros(2, 4))).sum().item())  # born")
    assert ran.out == "nan\n"
    assert ran.status == 1
    assert (ran.only()["step"], ran.report["verdict"]) == (6, "nonfinite")


EVALUATES = """
class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)  # born

fit(5)
with torch.no_grad():
    Log()(torch.zeros(2))
"""


@pytest.mark.full
def test_a_first_evaluation_is_looked_at_as_it_runs(tmp_path: Path) -> None:
    ran = run(tmp_path, EVALUATES)
    finding = ran.only()
    assert (ran.status, finding["step"], finding["phase"]) == (1, 6, "forward")
    assert ran.report["run"]["replay"]["kind"] == "none"
    assert finding["reaches"] == [{"kind": "output", "name": "output", "bad": 2, "total": 2, "value": "-Infinity"}]


EVALUATES_LATER = """
class Log(nn.Module):
    def forward(self, x):
        return model(torch.log(x))  # born

log = Log()

@torch.no_grad()
def evaluate(x):
    return log(x).sum()

for epoch in range(5):
    fit(2)
    evaluate(batch(epoch, bad=[3]))
print("not reached")
"""


@pytest.mark.full
def test_a_later_evaluation_that_gives_something_bad_is_run_again(tmp_path: Path) -> None:
    ran = run(tmp_path, EVALUATES_LATER)
    finding = ran.only()
    assert (ran.status, ran.out, finding["step"], finding["element"]["index"]) == (1, "", 9, [2, 1])
    assert (ran.report["run"]["replay"]["kind"], ran.report["run"]["replay"]["faithful"]) == ("step", True)


STATISTICS = """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("spread", torch.ones(4))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.spread.lerp_(x.SPREAD, 0.1)  # born
        return x / self.spread if not self.training else x


scaled = Scaled()
for step in range(4):
    rows = batch(step)[: 1 if step == 2 else 8]
    optimizer.zero_grad()
    model(scaled(rows)).square().mean().backward()
    optimizer.step()
scaled.eval()
with torch.no_grad():
    print(model(scaled(batch(9))).mean().item())
"""


@pytest.mark.full
def test_what_a_step_spoilt_for_an_evaluation_is_told_where_it_was_born(tmp_path: Path) -> None:
    """A buffer that turns NaN in a step whose loss and gradients are finite, and is read by the evaluation alone."""
    ran = run(tmp_path, STATISTICS.replace("SPREAD", "std(0)"))
    finding = ran.only()
    assert (finding["rule"], finding["site"]["line"], finding["step"]) == ("WN601", ran.born, 3)
    assert {reach["kind"] for reach in finding["reaches"]} >= {"output"}
    assert finding["fixes"][0]["verdict"]["status"] == "guarded"
    assert ran.report["run"]["replay"]["faithful"]


@FULL
def test_after_a_bad_evaluation_a_program_may_go_on(tmp_path: Path) -> None:
    ran = run(tmp_path, EVALUATES_LATER, "--on-nonfinite", "continue")
    assert (ran.status, ran.out, ran.only()["step"]) == (1, "not reached\n", 9)


@pytest.mark.full
def test_a_wrong_finite_output_of_an_evaluation_is_a_warning(tmp_path: Path) -> None:
    rest = """
    class Half(nn.Module):
        def forward(self, x):
            return torch.rsqrt(x.square().mean())  # born

    fit(3)
    with torch.inference_mode():
        Half()(torch.full((4,), 300.0))
        Half().half()(torch.full((4,), 300.0).half())
    """
    ran = run(tmp_path, rest)
    assert (ran.status, ran.report["verdict"], ran.only()["fate"]) == (0, "damaged", "damaging")


HEALTHY = {
    "masked scores": """
        class Scores(nn.Module):
            def forward(self, x):
                return x.masked_fill(x < 0.5, -math.inf)

        fit(3)
        with torch.no_grad():
            for i in range(4):
                print(Scores()(torch.rand(3)).softmax(0).sum() > 0)
    """,
    "a best value": """
        best = torch.tensor(math.inf)
        print(best, best.item(), float(best), best.tolist())
        fit(3)
        print(best, best.item(), float(best), best.tolist())
    """,
    "a teacher in each step": """
        teacher = nn.Linear(4, 1)
        def guard(loss):
            with torch.no_grad():
                teacher(torch.rand(2, 4))
        fit(5, guard=guard)
    """,
    "two threads that evaluate": """
        import threading
        fit(2)
        def evaluate():
            with torch.no_grad():
                for _ in range(50):
                    model(torch.rand(2, 4))
        threads = [threading.Thread(target=evaluate) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
    """,
    "a module that raises": """
        class Raises(nn.Module):
            def forward(self, x):
                raise KeyError("none")
        fit(2)
        with torch.no_grad():
            for _ in range(3):
                try:
                    Raises()(torch.ones(1))
                except KeyError as error:
                    print(error)
        fit(2)
    """,
}


@pytest.mark.parametrize("name", [n if n in SAMPLE else pytest.param(n, marks=FULL) for n in HEALTHY])
def test_a_healthy_program_is_clean_and_unchanged(name: str, tmp_path: Path) -> None:
    ran = run(tmp_path, HEALTHY[name])
    bare = forking.run([sys.executable, tmp_path / "train.py"], env={**os.environ, "OMP_NUM_THREADS": "1"})
    bare.check_returncode()
    assert (ran.status, ran.out) == (0, bare.stdout)
    assert ran.report["verdict"] == "clean", ran.err


@FULL
def test_an_output_that_is_not_looked_at_is_noticed(tmp_path: Path) -> None:
    """The twin: without watching beside the steps, nothing of the evaluation is known."""
    ran = run(tmp_path, EVALUATES, "--steps", "1")
    assert (ran.status, ran.report["verdict"]) == (0, "clean")


KILLED = """
class Killed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if any(frame.filename.endswith("training/replay.py") for frame in traceback.extract_stack()):
            getattr(ctypes.CDLL(None), "raise")(signal.SIGKILL)
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad

for step in range(1, 7):
    optimizer.zero_grad()
    logs = torch.log(batch(step, bad=[4]))  # born
    Killed.apply(model(logs)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.full
def test_a_kill_in_a_replay_leaves_a_readable_trace(tmp_path: Path) -> None:
    script, trace = tmp_path / "train.py", tmp_path / "trace"
    script.write_text(TRAINS + KILLED, encoding="utf-8")
    command = [str(WHYNAN), "run", "--mode", "watch", "--trace", str(trace), str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = forking.run(command, env=environment)
    assert done.returncode in (-9, 137), done.stderr
    told = forking.run([WHYNAN, "report", "--json", tmp_path / "told.json", trace])
    assert "the run ended in the replay of a bad step" in told.stdout + told.stderr
    report = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))
    assert report["coverage"]["events"] > 0
    assert sorted(path.name for path in trace.glob("replay-*")) == ["replay-1"]


@pytest.mark.full
@pytest.mark.parametrize("redact", [pytest.param((), marks=FULL), ("--redact",)])
def test_the_trace_of_a_watched_run_tells_what_the_run_told(redact: tuple[str, ...], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    ran = run(tmp_path, "fit(6, bad=[4])", "--mode", "watch", "--trace", str(trace), *redact)
    forking.run([WHYNAN, "report", "--quiet", "--json", tmp_path / "told.json", trace])
    told = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))
    assert told == ran.report
    assert ran.report["run"]["replay"]["faithful"]
