"""Trainings that fail at one step and whose right mend is at several sites, and what would be wrong at one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.quality.verdicts import substituted
from tests.quality.verdicts.several_sites import LOG_SOFTMAX, LOGITS, OF_SOFTMAX, Program
from tests.quality.verdicts.substituted import Wrong
from whynan.report.json import parse_report

if TYPE_CHECKING:
    from pathlib import Path

    from whynan.records import Report

_HEAD: Final = """import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(4, 3)
        with torch.no_grad():
            self.scores.weight.copy_(torch.sin(torch.arange(12.0)).view(3, 4))
            self.scores.bias.fill_(0.1)

    def forward(self, x):
        return {}


{}net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(5):
    x = torch.cos(torch.arange(24.0) + step).view(6, 4)
    if step == 2:
        x = x * torch.tensor([[300.0], [1.0], [1.0], [1.0], [1.0], [1.0]])
    y = (torch.arange(18.0).view(6, 3) % 2)
    rows = torch.arange(6).view(6, 1) % 3
    loss = {}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_DRIVER: Final = """
import runpy, sys
names = runpy.run_path(sys.argv[1])
substitution = names["Substitution"](names["Wrong"](*sys.argv[2:5]), sys.argv[5])
sys.argv = ["whynan", "run", "--json", "report.json", "program.py"]
from whynan.cli.entry import main
with substitution.in_place():
    main()
"""


def _training(
    name: str, gives: str, functions: str, loss: str, sites: tuple[str, ...], *wrong: tuple[str, str, str]
) -> Program:
    return Program(name, {"program.py": _HEAD.format(gives, functions, loss)}, (), (), 0, sites, wrong)


TRAININGS: Final = (
    _training(
        "a policy that is trained",
        "torch.softmax(self.scores(x), dim=-1)",
        "",
        "-torch.log(net(x).gather(1, rows)).mean()",
        (LOGITS, LOG_SOFTMAX),
        *OF_SOFTMAX,
    ),
    _training(
        "an energy and an entropy that are both trained",
        "self.scores(x)",
        "def energy(z):\n    return torch.log(torch.exp(z).sum(-1))\n\n\n"
        "def entropy(z):\n    q = torch.softmax(z, -1)\n    return -(q * torch.log(q)).sum(-1)\n\n\n",
        "(energy(net(x)) - 0.1 * entropy(net(x))).mean()",
        ("return «torch.logsumexp(z, -1)»", "return -«(q * F.log_softmax(z, -1)).sum(-1)»"),
        ("the second as it was", "F.log_softmax(z, -1)", "torch.log(q)"),
        ("nan_to_num", "F.log_softmax(z, -1)", "torch.nan_to_num(torch.log(q))"),
        ("softmax twice", "F.log_softmax(z, -1)", "F.log_softmax(q, -1)"),
        ("the greatest in its place", "torch.logsumexp(z, -1)", "torch.amax(z, -1)"),
        ("the loss of another sign", "return -(q *", "return (q *"),
    ),
)


def run(program: Program, folder: Path, wrong: Wrong | None = None, titles: str = "") -> Report:
    """The report of a training under ``whynan run``, with something wrong in its mend; ``titles`` as a right one's."""
    (folder / "program.py").write_text(program.files["program.py"], "utf-8")
    started = ["-m", "whynan", "run", "--json", "report.json", "program.py"]
    if wrong is not None:
        started = ["-c", _DRIVER, substituted.__file__, wrong.how, wrong.piece, wrong.instead, titles]
    environment = {**os.environ, "WHYNAN_RAISE_INTERNAL": "1"}
    subprocess.run([sys.executable, *started], cwd=folder, env=environment, capture_output=True, check=False)
    return parse_report((folder / "report.json").read_bytes())
