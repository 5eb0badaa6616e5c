"""A short program that is over is replayed from its first operation, so that its fixes are proved; never a long one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

WHYNAN = Path(sys.executable).with_name("whynan")
SCRIPT = """\
import sys
import torch

CALLS = []


def units(rows):
    CALLS.append(len(rows))
    return rows / rows.norm(dim=1, keepdim=True)


torch.manual_seed(3)
rows = torch.randn(6, 4)
rows[2] = 0
found = units(rows)
{after}
print("calls", CALLS, "next", torch.rand(1).item(), "mean", found.mean().item())
"""
OPTIMIZER = """\
import torch


class Averaged(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["steps"], state["drift"] = 0, torch.zeros_like(p)
                state["steps"] += 1
                state["drift"].add_(p)
                p.sub_(group["lr"] * p.grad)
                ratio = state["drift"].sum() / state["drift"].abs().sum()
                p.sub_(1e-3 * ratio)


torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
torch.nn.init.zeros_(model.bias)
optimizer = Averaged(model.parameters(), lr=0.1)
x = torch.randn(8, 3)
for step in range(12):
    try:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    except Exception as error:
        print("raised", type(error).__name__)
        break
first = optimizer.state[model.weight]
print(first["steps"], first["drift"].sum().item(), model.weight.sum().item(), torch.rand(1).item())
"""

METRIC = """\
import torch
from torch import nn


def relative(y, yhat):
    return ((y - yhat).abs() / (y.abs() + yhat.abs())).mean(dim=0)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
nn.init.constant_(model[0].bias, -9.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
counts = torch.poisson(torch.full((40, 6), 0.3))
for i in range(6):
    loss = (model(counts[:, :4]) - counts[:, 4:]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    found = relative(counts[:, 4:], model(counts[:, :4]))
print("metric", {read})
{after}
"""


def run(folder: Path, text: str, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A script under whynan: the process that has ended, and the report."""
    (folder / "bug.py").write_text(text, encoding="utf-8")
    command = [str(WHYNAN), "run", "--json", "r.json", *options, "bug.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done, json.loads((folder / "r.json").read_text(encoding="utf-8"))


def by_python(folder: Path) -> str:
    """What the same script prints by itself."""
    return subprocess.run([sys.executable, "bug.py"], cwd=folder, capture_output=True, text=True, check=True).stdout


def best(report: dict[str, Any]) -> dict[str, Any]:
    """The first fix's verdict."""
    return report["findings"][0]["fixes"][0]["verdict"]


@pytest.mark.smoke
def test_a_fix_of_a_program_that_has_ended_is_proved(tmp_path: Path) -> None:
    done, report = run(tmp_path, SCRIPT.format(after=""))
    assert done.stdout == by_python(tmp_path)
    assert best(report)["status"] in ("verified", "guarded", "distorting")
    assert "--rerun" not in done.stderr


@pytest.mark.full
def test_what_runs_at_the_end_runs_once(tmp_path: Path) -> None:
    after = "import atexit\natexit.register(lambda: print('bye'))\ntorch.save(found, 'found.pt')"
    done, report = run(tmp_path, SCRIPT.format(after=after))
    assert done.stdout == by_python(tmp_path)
    assert done.stdout.count("bye") == 1
    assert "registers what runs at the program's end" in best(report)["why"]


def test_a_program_that_writes_a_file_is_not_replayed(tmp_path: Path) -> None:
    _, report = run(tmp_path, SCRIPT.format(after="with open('log', 'a') as log: log.write('once')"))
    assert (tmp_path / "log").read_text() == "once"
    assert best(report)["status"] == "unverified"
    assert "for writing" in best(report)["why"]
    assert "--rerun" in best(report)["why"]


STATE = """\
import atexit
import decimal
import gc
import helper
import torch
import weakref

import numpy as np

real = torch.relu


class Held:
    def __init__(self):
        self.me = self
        self.name = "held"

    def __del__(self):
        with open("closed", "a") as closed:
            closed.write("closed ")


@atexit.register
def end():
    print(helper.COUNT, np.geterr()["over"], decimal.getcontext().prec, torch.relu(torch.ones(1)).item())
    gc.collect()


x = torch.zeros(3)
torch.relu = lambda x: real(x) + 1
gc.set_threshold(1_000_000_000)  # when it comes by itself is as it happens
held = Held()
weakref.finalize(held, print, "finalized")
np.seterr(over="ignore")
decimal.getcontext().prec = 7
helper.called()
print(helper.COUNT, torch.log(x).tolist())
del held
"""


@pytest.mark.full
def test_state_of_other_modules_is_put_back_and_what_ends_ends_once(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("COUNT = []\n\n\ndef called():\n    COUNT.append(1)\n", encoding="utf-8")
    done, report = run(tmp_path, STATE)
    once = (tmp_path / "closed").read_text()
    assert best(report)["status"] != "unverified", best(report)
    (tmp_path / "closed").unlink()
    assert done.stdout == by_python(tmp_path)
    assert once == (tmp_path / "closed").read_text() == "closed "


@pytest.mark.full
@pytest.mark.parametrize(
    "opened",
    [
        "import sqlite3; there = sqlite3.connect('x.db'); there.execute('create table t(a)')\n{}\n"
        "there.execute('insert into t values(1)'); there.commit()",
        "import numpy as np; there = np.memmap('x.db', shape=4, mode='w+')\n{}\nthere[0] += 1",
        "import threading; go = threading.Event(); there = threading.Thread(target=go.wait)\nthere.start()\n{}\n"
        "threading.main_thread(); go.set()",
    ],
    ids=["database", "mapped", "thread"],
)
def test_what_was_opened_before_is_written_to_once(tmp_path: Path, opened: str) -> None:
    text = opened.format("import torch; print(torch.log(torch.zeros(2)).tolist())")
    run(tmp_path, text)
    kept = tmp_path / "x.db"
    left = kept.read_bytes() if kept.exists() else b""
    kept.unlink(missing_ok=True)
    by_python(tmp_path)
    assert left == (kept.read_bytes() if kept.exists() else b"")


def test_a_program_that_others_end_is_not_replayed(tmp_path: Path) -> None:
    done, report = run(tmp_path, SCRIPT.format(after="raise KeyboardInterrupt"))
    assert done.returncode != 0
    assert best(report)["why"] == "the program was run once: whynan run --rerun runs it again to prove fixes"


def test_a_program_that_raises_for_its_bad_number_has_its_fix_proved(tmp_path: Path) -> None:
    after = "if not torch.isfinite(found).all(): raise ValueError(found)"
    done, report = run(tmp_path, SCRIPT.format(after=after))
    assert "ValueError" in done.stderr
    assert best(report)["status"] in ("verified", "guarded", "distorting")


def test_no_proof_is_made_where_none_is_wanted(tmp_path: Path) -> None:
    _, report = run(tmp_path, SCRIPT.format(after=""), "--no-proof")
    assert best(report)["why"] == "no proof was asked for (--no-proof)"


@pytest.mark.full
def test_a_first_step_that_bears_bad_numbers_itself_is_replayed_with_its_fix(tmp_path: Path) -> None:
    _, report = run(tmp_path, OPTIMIZER)
    assert report["findings"][0]["phase"] == "optimizer"
    assert best(report)["status"] in ("verified", "guarded"), best(report)


@pytest.mark.full
def test_a_program_that_goes_on_after_such_a_step_has_its_numbers(tmp_path: Path) -> None:
    done, report = run(tmp_path, OPTIMIZER, "--on-nonfinite", "raise")
    assert best(report)["status"] in ("verified", "guarded")
    # a step and nothing of its replays: as where nothing is proved
    unproved, _ = run(tmp_path, OPTIMIZER, "--on-nonfinite", "raise", "--no-proof")
    assert done.stdout == unproved.stdout
    assert done.stdout.startswith("raised NonFiniteError\n1 ")


LATER = """\
import torch


class Scaled(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.made = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.made += 1
        for group in self.param_groups:
            for p in group["params"]:
                left = torch.full_like(p, 5.0 - self.made)
                p.sub_(group["lr"] * p.grad / left)


torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = Scaled(model.parameters(), lr=0.1)
x = torch.randn(8, 3)
for step in range(12):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""


@pytest.mark.full
def test_a_later_step_that_bears_bad_numbers_itself_is_led_back_from_the_start(tmp_path: Path) -> None:
    """Watched steps keep no copies of the weights: the program is run again from its first operation, to that step."""
    done, report = run(tmp_path, LATER)
    (finding,) = report["findings"]
    assert (finding["site"]["line"], finding["phase"], finding["step"]) == (15, "optimizer", 5)
    assert finding["rule"] != "WN004"
    assert report["run"]["replay"]["faithful"]
    assert best(report)["status"] in ("verified", "guarded")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["0", "1", "2", "3", "4"]


@pytest.mark.full
def test_a_program_with_another_thread_is_not_run_again_for_such_a_step(tmp_path: Path) -> None:
    """The twin: what the thread does meanwhile would not be put back."""
    beside = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    _, report = run(tmp_path, beside + LATER)
    assert "WN004" in {finding["rule"] for finding in report["findings"]}


RENEWED = """\
import torch

torch.manual_seed(0)
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(6):
    if step == 3:
        weight = torch.nn.Parameter(torch.log(weight.detach().round()))
        optimizer = torch.optim.SGD([weight], lr=0.1)
    loss = (weight * torch.tensor([1.0, 2.0, 3.0])).sum() * 0.9
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step)
"""


@pytest.mark.full
def test_the_first_step_of_a_new_optimizer_is_led_back_from_the_start(tmp_path: Path) -> None:
    """It is told apart from the first step of the one before it, which is made on the way."""
    done, report = run(tmp_path, RENEWED)
    assert [(finding["site"]["line"], finding["rule"]) for finding in report["findings"]] == [(8, "WN201")]
    assert report["run"]["replay"]["faithful"]
    assert done.stdout.split() == ["0", "1", "2"]


FOLDS = """\
import torch
from torch import nn


def standardised(x):
    return (x - x.mean(0)) / x.std(0)


def train(x, y, chosen):
    net = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for epoch in range(3):
        features = standardised(x[chosen])
        loss = nn.functional.mse_loss(net(features).squeeze(-1), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
x, y = torch.randn(30, 3), torch.randn(30)
x[:, 2] = (torch.arange(30) % 3 == 2).float()
for fold in range(3):
    train(x, y, torch.arange(30) % 3 != fold + SHIFT)
    print("fold", fold)
"""


@pytest.mark.proof
@pytest.mark.parametrize(("shift", "made"), [(0, 2), *(pytest.param(n, 2 - n, marks=pytest.mark.full) for n in (1, 2))])
def test_the_first_step_of_each_optimizer_of_a_loop_is_replayed_from_where_that_is_made(
    tmp_path: Path, shift: int, made: int
) -> None:
    done, report = run(tmp_path, FOLDS.replace("SHIFT", str(shift)))
    (finding,) = report["findings"]
    assert (finding["site"]["line"], finding["rule"], finding["step"]) == (6, "WN111", 1)
    assert finding["fixes"][0]["verdict"]["status"] == "guarded"
    assert done.stdout.split("\n")[:-1] == [f"fold {n}" for n in range(made)]


TUNED = """\
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
zero = torch.zeros(3)
for step in range(6):
    loss = net(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    if step == 2:
        optimizer.param_groups[0]["lr"] = (zero.sum() / zero.abs().sum()).item()
    optimizer.step()
    print(step, net.weight.sum().item())
"""


@pytest.mark.full
def test_weights_that_a_step_has_made_nan_are_no_other_finding_where_they_are_printed(tmp_path: Path) -> None:
    _, report = run(tmp_path, TUNED)
    (finding,) = report["findings"]
    assert (finding["site"]["line"], finding["rule"], finding["step"]) == (12, "WN101", 3)


PREPARED = """\
import torch
from torch import nn


def inverse_of_softplus(y):
    return torch.log(torch.exp(y) - 1)


class Net(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.raw = nn.Parameter(inverse_of_softplus(scale))

    def forward(self, x):
        return x / nn.functional.softplus(self.raw)


net = Net(torch.tensor([0.5, 120.0]))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    net(torch.ones(4, 2)).square().mean().backward()
    optimizer.step()
    print(step)
"""


@pytest.mark.full
def test_what_is_bad_before_the_first_step_is_mended_where_it_was_made(tmp_path: Path) -> None:
    """A replay of the step alone does not come to the edit: the program is replayed from its first operation."""
    done, report = run(tmp_path, PREPARED)
    assert (report["findings"][0]["site"]["line"], done.stdout) == (6, "")
    assert best(report)["status"] == "verified", best(report)


REFUSED = """\
import torch
from torch import nn


def standardised(x):
    return (x - x.mean(0)) / x.std(0)


class Seen(nn.Module):
    def forward(self, x):
        return standardised(x)


torch.manual_seed(0)
seen, policy = Seen(), nn.Linear(3, 2)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
rows = torch.randn(8, 3)
rows[:, 1] = 1.0
for step in range(2):
    usual = seen(rows)
    print(usual.mean().item())
    drawn = torch.distributions.Categorical(logits=policy(usual))
    optimizer.zero_grad()
    (-drawn.log_prob(drawn.sample()).mean()).backward()
    optimizer.step()
"""


@pytest.mark.full
def test_a_program_that_was_stopped_ahead_of_its_own_exception_is_replayed(tmp_path: Path) -> None:
    """Without the change it would raise further on, where it has not come to."""
    _, report = run(tmp_path, REFUSED)
    assert (report["findings"][0]["site"]["line"], report["run"]["exit_status"]["script"]) == (6, None)
    assert best(report)["status"] in ("verified", "guarded"), best(report)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("after", "read"),
    [
        ("", "found.tolist()"),
        ("loss.backward if loss > 9 else optimizer.step()", "found[0].item()"),
        pytest.param("", "found[0].item()", marks=pytest.mark.full),
        pytest.param("loss.backward if loss > 9 else optimizer.step()", "found.tolist()", marks=pytest.mark.full),
    ],
)
def test_what_mends_a_metric_is_tried_up_to_where_the_program_reads_it(tmp_path: Path, read: str, after: str) -> None:
    """It is read no more as a bad number: the replay goes past it, to the next step or the end of the program."""
    done, report = run(tmp_path, METRIC.format(read=read, after=after))
    assert done.returncode == 0, done.stderr
    finding = report["damaging"][0] if report["damaging"] else report["findings"][0]
    assert finding["site"]["line"] == 6
    assert finding["fixes"][0]["verdict"]["status"] == "guarded", finding["fixes"]


ARRAYS = """\
import numpy as np
import torch

rows = np.array([[0.0, 2.0], [0.0, 4.0]], dtype=np.float32) / np.array([[0.0, 2.0], [5.0, 0.0]], dtype=np.float32)
weight = torch.ones(2, requires_grad=True)
(torch.from_numpy(rows) @ weight).sum().backward()
"""


@pytest.mark.full
def test_a_numpy_mend_is_proved_where_nothing_has_loaded_the_compiler(tmp_path: Path) -> None:
    _, report = run(tmp_path, ARRAYS)
    fixes = report["findings"][0]["fixes"]
    assert {fix["verdict"]["status"] for fix in fixes} == {"guarded"}, fixes


COUNTED = """\
import numpy as np
import torch

rows = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0]], dtype=np.float32)
found = torch.from_numpy(rows) @ torch.ones(2)
assert len(found) == 3
print(found.mean().item())
"""


@pytest.mark.full
def test_a_fix_that_was_judged_on_no_operands_is_not_said_to_hold_on_them(tmp_path: Path) -> None:
    _, report = run(tmp_path, COUNTED)
    verdict = best(report)
    assert verdict["status"] == "unverified"
    assert verdict["why"].startswith("it was not tried in the program: ")


SWALLOWED = """\
import numpy as np
import torch

weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range({steps}):
    optimizer.zero_grad()
    (weight * weight).sum().backward()
    optimizer.step()
rows = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0]], dtype=np.float32)
for size in [{first}, 3]:
    found = None
    try:
        with torch.no_grad():
            found = (torch.from_numpy(rows).reshape(size, 2) @ weight).mean()
    except RuntimeError:
        print("skipped")
    if found is not None:
        print(found.item())
"""


@pytest.mark.full
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize(("first", "status"), [(-1, "guarded"), (3, "unverified")])
def test_an_edit_with_which_the_bad_number_is_not_read_at_all_is_no_mend(
    tmp_path: Path, steps: int, first: int, status: str
) -> None:
    """What the program raises and swallows has left it out; one that is read all the same is read as a finite one."""
    _, report = run(tmp_path, SWALLOWED.format(steps=steps, first=first))
    finding = report["damaging"][0] if report["damaging"] else report["findings"][0]
    titles = {fix["title"]: fix["verdict"]["status"] for fix in finding["fixes"]}
    assert titles == {"no rows of rows that hold NaN or Inf": status}, finding["fixes"]


GATHERED = """\
import torch


class Divergence:
    def __init__(self):
        self.total, self.each = torch.zeros(()), []

    def update(self, p, q):
        found = (p * torch.log(p / q)).sum()
        {gathers}


torch.manual_seed(0)
model = torch.nn.Linear(6, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
divergence = Divergence()
for _ in range(6):
    inputs, labels = torch.randn(16, 6), torch.randint(4, (16,))
    logits = model(inputs)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(logits, labels).backward()
    optimizer.step()
    divergence.update(torch.nn.functional.one_hot(labels, 4).float(), logits.detach().softmax(-1))
print("divergence", {read}.item())
"""


@pytest.mark.proof
@pytest.mark.parametrize(
    ("gathers", "read", "option", "status"),
    [
        ("self.total += found", "divergence.total", "--quiet", "verified"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("self.total += found", "divergence.total", "--no-proof", "unverified"),
                ("self.each.append(found)", "torch.stack(divergence.each).mean()", "--quiet", "verified"),
            )
        ),
    ],
)
def test_a_number_that_gathers_over_steps_is_led_back_from_the_start(
    tmp_path: Path, gathers: str, read: str, option: str, status: str
) -> None:
    """It was bad already where the last step begins."""
    done, report = run(tmp_path, GATHERED.format(gathers=gathers, read=read), option)
    (finding,) = [*report["findings"], *report["damaging"]]
    assert (finding["rule"], finding["site"]["line"], finding["step"]) == ("WN210", 9, 2)
    assert report["run"]["replay"]["faithful"]
    assert finding["fixes"][0]["verdict"]["status"] == status
    assert done.stdout == by_python(tmp_path)


RAISED = """\
import torch
from torch.distributions import Categorical


def standardised(total, squares, count):
    variance = squares / (count - 1)
    return total / count, variance


torch.manual_seed(0)
policy = torch.nn.Linear(3, 2)
squares, count = torch.tensor([[0.0, 2.0, 4.0]]), torch.tensor([[1.0, 3.0, 5.0]])
mean, variance = standardised(torch.ones(1, 3), squares, count)
action = Categorical(logits=policy(variance)).sample()
"""


@pytest.mark.full
@pytest.mark.proof
def test_what_is_held_as_a_program_raises_is_no_other_birth(tmp_path: Path) -> None:
    _, report = run(tmp_path, RAISED)
    assert report["findings"][0]["site"]["line"] == 6
    assert best(report)["status"] == "guarded", best(report)


TWO_PLACES = """\
import torch


def convergence(x, y):
    return torch.norm(y - x) / torch.norm(y)


torch.manual_seed(0)
model = torch.nn.Linear(6, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(3):
    target = torch.rand(8, 4) * (i != 1)
    found = model(torch.randn(8, 6)).exp()
    loss = convergence(found, target) + (torch.log(found) - torch.log(target)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.full
def test_an_edit_of_more_lines_leaves_the_loop_below_it_where_the_edited_text_has_it(tmp_path: Path) -> None:
    """Behind the first birth is that of the loop, which the first run has too: both are mended as one."""
    _, report = run(tmp_path, TWO_PLACES)
    assert [finding["site"]["line"] for finding in report["findings"]] == [5, 14]
    assert best(report)["status"] == "guarded", best(report)
    (further,) = report["findings"][0]["fixes"][0]["further"]
    # of the text that the first edit has made a line longer
    assert (further["rule"], further["site"]["line"]) == ("WN201", 15)


LIGHTNING = """\
import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        x, y = batch
        weight = (y > 3).float()
        return (weight * (self.net(x).squeeze(1) - y).abs()).sum() / weight.sum()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


torch.manual_seed(0)
quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_epochs=1, logger=False, accelerator="cpu", **quiet)
trainer.fit(Net(), DataLoader(TensorDataset(torch.randn(8, 4), torch.rand(8)), 4))
"""


@pytest.mark.full
@pytest.mark.proof
def test_a_first_step_that_is_made_by_its_closure_is_replayed(tmp_path: Path) -> None:
    """The step itself calls what computes the loss: what it is made of is known only then."""
    _, report = run(tmp_path, LIGHTNING)
    assert (report["findings"][0]["site"]["line"], report["findings"][0]["step"]) == (14, 1)
    assert best(report)["status"] == "guarded", best(report)


COLLATED = """\
import numpy as np
import torch
from torch.utils.data import DataLoader


def collate(rows):
    counts = np.stack(rows)
    return torch.from_numpy(np.log(counts)).float()


data = np.random.default_rng(0).poisson(5.0, size=(24, 3)) + 1
data[17, 1] = 0
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for x in DataLoader(data, batch_size=8, collate_fn=collate):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.full
@pytest.mark.proof
def test_an_infinity_that_numpy_made_of_a_later_batch_is_mended_where_it_was_made(tmp_path: Path) -> None:
    """Its NaN is born in a layer; NumPy's expression is of whole numbers, which have no smallest normal one."""
    _, report = run(tmp_path, COLLATED)
    (finding, *_), fixes = report["findings"], report["findings"][0]["fixes"]
    assert (finding["birth"], finding["step"]) == ("invalid", 3)
    assert finding["data"]["computed"]["code"] == "np.log(counts)"
    assert fixes[0]["verdict"]["status"] == "guarded", fixes
    assert "+    return torch.from_numpy(np.log(np.where(counts == 0, 1, counts))).float()" in fixes[0]["patch"]
