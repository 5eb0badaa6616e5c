"""The changes of how a program trains: where a file offers a place for one, and what is written there."""

from __future__ import annotations

import difflib

import pytest

from whynan.fixes.python import training_changes

SCRIPT = """\
import torch
from torch import nn, optim

CONSTANT
model = nn.Linear(3, 1)
optimizer = OPTIMIZER
for step in range(9):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).pow(2).mean().backward()
    STEP
"""


def script(optimizer: str = "optim.SGD(model.parameters(), lr=0.5)", constant: str = "", step: str = "") -> str:
    text = SCRIPT.replace("OPTIMIZER", optimizer).replace("CONSTANT", constant)
    return text.replace("STEP", step or "optimizer.step()")


def added(text: str, kind: str) -> list[list[str]]:
    """The lines that each change of a kind writes."""
    made = [c.edited for c in training_changes("train.py", text) if c.kind == kind]
    ways = (difflib.ndiff(text.splitlines(), edited.splitlines()) for edited in made)
    return [[line[2:].strip() for line in way if line.startswith("+ ")] for way in ways]


@pytest.mark.parametrize(
    ("optimizer", "constant", "written"),
    [
        ("optim.SGD(model.parameters(), lr=0.5)", "", "optimizer = optim.SGD(model.parameters(), lr=0.05)"),
        ("optim.SGD(model.parameters(), 0.5)", "", "optimizer = optim.SGD(model.parameters(), 0.05)"),
        ("torch.optim.Adam(model.parameters())", "", "optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)"),
        (
            "optim.SGD(model.parameters(), lr=RATE)",
            "RATE = 1",
            "optimizer = optim.SGD(model.parameters(), lr=0.1 * RATE)",
        ),
        ("optim.SGD(model.parameters(), 1 / n)", "n = 2", "optimizer = optim.SGD(model.parameters(), 0.1 * (1 / n))"),
        (
            "made(model)",
            "cycle = optim.lr_scheduler.OneCycleLR(made, max_lr=self.peak, total_steps=9)",
            "cycle = optim.lr_scheduler.OneCycleLR(made, max_lr=0.1 * self.peak, total_steps=9)",
        ),
        (
            "made(model)",
            "cycle = optim.lr_scheduler.CyclicLR(made, 1e-4, 2.0)",
            "cycle = optim.lr_scheduler.CyclicLR(made, 1e-4, 0.2)",
        ),
        ("made(model)", "config = {'lr': 3e-2, 'steps': 9}", "config = {'lr': 0.003, 'steps': 9}"),
        ("made(model)", "learning_rate = 2.0", "learning_rate = 0.2"),
        ("made(model)", "def made(m, lr=0.4): ...", "def made(m, lr=0.04): ..."),
        (
            "made(model)",
            "parser.add_argument('--learning-rate', type=float, default=0.4)",
            "parser.add_argument('--learning-rate', type=float, default=0.04)",
        ),
    ],
)
def test_the_learning_rate_is_made_smaller_where_it_is_given(optimizer: str, constant: str, written: str) -> None:
    assert [written] in added(script(optimizer, constant), "rate")


def test_what_is_no_number_or_no_learning_rate_stays() -> None:
    assert added(script("made(model)", "config = {'lr': 'auto', 'steps': 9}; lr_factor = 3.0"), "rate") == []


def test_gradients_are_clipped_ahead_of_the_step() -> None:
    known = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)"
    assert added(script(), "clipping")[0] == [known]
    scaled = added(script(step="scaler.step(optimizer)"), "clipping")[0]
    assert scaled == ["scaler.unscale_(optimizer)", known]
    anyhow = '[p for group in optimizer.param_groups for p in group["params"]]'
    assert added(script("made(model)"), "clipping")[0] == [known.replace("model.parameters()", anyhow)]


def test_a_step_that_is_no_statement_of_its_own_is_left() -> None:
    assert added(script(step="if step: optimizer.step()"), "clipping") == []
    assert added(script(step="optimizer.step(closure)"), "clipping") == []
    assert added(script(step="environment.step(action)"), "clipping") == []
    assert added(script(step="optimizers[0].step()"), "clipping") == []


def test_a_file_that_has_no_torch_imports_it() -> None:
    text = "def fit(optimizer):\n    optimizer.step()\n"
    assert added(text, "clipping")[0][0] == "import torch"
