"""A training that runs away is mended by a smaller step, tried from the program's start; nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.proof]

WHYNAN = Path(sys.executable).with_name("whynan")
TRAINING = """\
import torch
from torch import nn

CONFIG = {"lr": RATE, "steps": 50}


class Trainer:
    def __init__(self, config):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
        self.optimizer = OPTIMIZER
        self.x, self.y = torch.randn(64, 10), torch.randn(64, 1) * 10

    def step(self, number):
        loss = nn.functional.mse_loss(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        CHECK
        loss.backward()
        self.optimizer.step()


trainer = Trainer(CONFIG)
for number in range(CONFIG["steps"]):
    trainer.step(number)
"""
SGD = "torch.optim.SGD(self.model.parameters(), lr=config['lr'])"
BY_NAME = "getattr(torch.optim, 'SGD')(self.model.parameters(), **{k: v for k, v in config.items() if k == 'lr'})"
RAISES = "if not torch.isfinite(loss): raise RuntimeError(f'loss is {loss.item()} at {number}')"
EXPLODING = """\
import torch
import torch.nn as nn


class Rnn(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.cell = nn.RNN(1, hidden, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.cell(x)[0][:, -1])


def train():
    torch.manual_seed(3)
    net = Rnn()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(200):
        x = torch.randn(16, 60, 1)
        loss = nn.functional.mse_loss(net(x), x.cumsum(1)[:, -1])
        opt.zero_grad()
        loss.backward()
        opt.step()


train()
"""
HALF = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).half()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
tokens = torch.randint(0, 20, (64,))
for step in range(20):
    loss = nn.functional.cross_entropy(net(tokens).float(), tokens)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
OTHER = """\
import torch
from torch import nn

torch.manual_seed(0)
w = nn.Parameter(torch.ones(4))
opt = torch.optim.SGD([w], lr=0.5)
for step in range(60):
    x = torch.randn(4)
    if step == 2:
        x[1] = ODD
    loss = LOSS
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def training(optimizer: str = SGD, rate: float = 3.0, check: str = "pass") -> str:
    return TRAINING.replace("OPTIMIZER", optimizer).replace("RATE", str(rate)).replace("CHECK", check)


def other(loss: str, odd: str = "0.5") -> str:
    return OTHER.replace("LOSS", loss).replace("ODD", odd)


def fixes(folder: Path, text: str) -> list[dict[str, Any]]:
    """The fixes of the first finding in a program, those with a change."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    command = [str(WHYNAN), "run", "--quiet", "--json", "report.json", "train.py"]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return [fix for fix in report["findings"][0]["fixes"] if fix["patch"]]


def held(folder: Path, text: str) -> list[tuple[str, str]]:
    """The changes of how a program trains that hold, with why."""
    found = [fix for fix in fixes(folder, text) if fix["verdict"]["status"] in ("verified", "guarded")]
    return [(fix["title"], fix["verdict"]["why"]) for fix in found]


@pytest.mark.parametrize(
    ("text", "title", "line"),
    [
        (training(), "a hundredth of the learning rate", "lr=0.01 * config['lr']"),
        pytest.param(
            training(check=RAISES), "a hundredth of the learning rate", "lr=0.01 * config['lr']", marks=pytest.mark.full
        ),
        (training(BY_NAME), "a hundredth of the learning rate", '"lr": 0.03'),
        pytest.param(
            EXPLODING,
            "gradients clipped to a norm of 100.0",
            "clip_grad_norm_(net.parameters(), max_norm=100.0)",
            marks=pytest.mark.full,
        ),
        (HALF, "float32, wherever the file asks for float16", "nn.Linear(16, 50)).float()"),
    ],
    ids=["constructor", "raises", "config", "clipping", "float32"],
)
def test_a_training_that_runs_away_goes_on_with_the_change(tmp_path: Path, text: str, title: str, line: str) -> None:
    ((found, why),) = held(tmp_path, text)
    assert found == title
    assert "all are finite, and the loss" in why
    command = [str(WHYNAN), "fix", "report.json", "--apply", "--yes"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    edited = (tmp_path / "train.py").read_text(encoding="utf-8")
    assert line in edited
    assert subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        other("((w * x).sum() - 1) ** 2", "1e25"),
        other("-(w.exp() ** 2).mean()"),
        other("(w * w).sum() + 0 * (1 / (x - x[1])).sum()"),
        other("(1e-3 * w.sum()) ** 2 + (torch.exp(x * step * 2) * w).sum()"),
    ],
    ids=["data", "no lower bound", "a pole", "grows by itself"],
)
def test_what_fails_for_another_reason_is_not_mended_by_smaller_steps(tmp_path: Path, text: str) -> None:
    assert not [title for title, _ in held(tmp_path, text) if "rate" in title or "clipped" in title]
