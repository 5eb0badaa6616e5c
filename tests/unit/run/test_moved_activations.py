"""The logarithm of what another function computes is taken of its logits, and whoever reads the rest reads the same."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest
import torch

import whynan
from tests.made_anew import check
from tests.selection import sampled
from whynan.fixes.diffs import apply_diff, read_diffs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from whynan.records import Report

pytestmark = pytest.mark.proof

X = torch.tensor([[0.5, -1.0, 0.25], [-90.0, 60.0, 1.0], [1.0, 0.5, -2.0], [80.0, 1.0, -70.0]])
ROWS = torch.tensor([[0], [0], [2], [2]])
TARGETS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
HEAD = """import torch
import torch.nn.functional as F
from torch import nn

"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.act = nn.{}

    def forward(self, x):
        return self.act(self.weight * x * 2)


model = Net()
"""
SOFTMAX, SIGMOID = NET.format("Softmax(dim=-1)"), NET.format("Sigmoid()")
FORMS = {
    "gathered": (SOFTMAX, "p = model(x)\nloss = -torch.log(p.gather(1, rows)).mean()"),
    "picked by an index": (SOFTMAX, "p = model(x)\nq = p[torch.arange(4), rows[:, 0]]\nloss = -q.log().mean()"),
    "in one line": (SOFTMAX, "loss = F.nll_loss(torch.log(model(x)), rows[:, 0])"),
    "called within an expression": (SOFTMAX, "p = model(x).gather(1, rows)\nloss = -torch.log(p).mean()"),
    "of a loss object": (SOFTMAX + "criterion = nn.NLLLoss()\n", "loss = criterion(model(x).log(), rows[:, 0])"),
    "both sides of a sigmoid": (
        SIGMOID,
        "p = model(x)\nloss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()\nright = (p > 0.5) == (y > 0.5)",
    ),
    "of two calls": (SIGMOID, "real = model(x)\nfake = model(-x)\nloss = -(real.log() + (1 - fake).log()).mean()"),
    "beside a value": (
        SOFTMAX.replace("return self.act(self.weight * x * 2)", "return self.act(self.weight * x * 2), x.mean()"),
        "p, value = model(x)\nloss = value - (p * torch.log(p)).sum(-1).mean()",
    ),
    "given to a function": (
        SIGMOID + "\n\ndef nll(p, y):\n    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()\n",
        "p = model(x)\nloss = nll(p, y)\nright = (p > 0.5) == (y > 0.5)",
    ),
    "given to a function that hands it on": (
        SIGMOID.replace("self.weight * x * 2)", "self.weight * x * 2).view(-1)")
        + "\n\ndef nll(p, y):\n    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()\n"
        + "\n\ndef step(p, y):\n    return nll(p, y) + 0.1 * (p - y).abs().mean()\n",
        "p = model(x)\nloss = step(p, y.view(-1))",
    ),
    "given to a loss object": (
        SOFTMAX
        + "\n\nclass Loss(nn.Module):\n    def forward(self, p, rows):\n"
        + "        return -p.gather(1, rows).log().mean()\n\n\ncriterion = Loss()\n",
        "loss = criterion(model(x), rows)",
    ),
    "a sequence": (
        "model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Softmax(dim=-1))\nnn.init.eye_(model[0].weight)\n",
        "p = model(x * 2)\nloss = -torch.log(p.gather(1, rows)).mean()",
    ),
    "a function": (
        "net = nn.Linear(3, 3, bias=False)\nnn.init.eye_(net.weight.requires_grad_(False))\n\n\n"
        "def model(x):\n    h = net(x)\n    return torch.softmax(h * 2, dim=-1)\n",
        "p = model(x)\nloss = -torch.log(p.gather(1, rows)).mean()",
    ),
}
WRONG = {
    # what is called takes the question and does not answer it
    "another class of keywords": """
class Other(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2, -1)


class Net(nn.Module):
    def forward(self, x, **options):
        return (x * 2).softmax(-1)


model = {"net": Net, "other": Other}["net"]()
""",
    "another class": """
class Other(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2, -1)


class Net(nn.Module):
    def forward(self, x):
        e = torch.exp(x * 2 - (x * 2).amax(-1, keepdim=True))
        return torch.clamp(e / e.sum(-1, keepdim=True), max=1)


model = {"net": Net, "other": Other}["net"]()
""",
    "what a hook is given": SOFTMAX
    + "seen = []\nmodel.register_forward_hook(lambda _, given, made: seen.append(made))\n",
}


def program(head: str, body: str) -> str:
    inner = textwrap.indent(f"{body}\nif x.requires_grad:\n    loss.backward()\nreturn loss", "    ")
    return f"{HEAD}{head}\n\ndef target(x, rows, y):\n{inner}\n"


def explained(module: ModuleType) -> Report:
    return whynan.explain(module.target, X.clone().requires_grad_(), ROWS, TARGETS, rerun=True)


@pytest.mark.parametrize("form", sampled(FORMS, 6))
def test_it_is_verified_and_other_readers_have_what_they_had(form: str, loaded: Callable[[str], ModuleType]) -> None:
    text = program(*FORMS[form])
    module = loaded(text)
    report = explained(module)
    fix = report.findings[0].fixes[0]
    assert fix.verdict.status == "verified", fix
    assert "return_logits=True" in (fix.patch or "") or "[:-1](" in (fix.patch or "")
    assert check(report)
    (diff,) = read_diffs(fix.patch or "")
    edited = loaded(apply_diff(diff, text))
    x = X.clone().requires_grad_()
    loss = edited.target(x, ROWS, TARGETS)
    assert torch.isfinite(loss)
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    before, after = module.model(X), edited.model(X)
    pairs = zip(before, after, strict=True) if isinstance(before, tuple) else [(before, after)]
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.full
def test_a_product_over_steps_is_a_sum_of_logarithms(loaded: Callable[[str], ModuleType]) -> None:
    body = "p = model(x / 4).gather(1, rows)\nloss = -torch.log(p.prod(0)).mean()"
    head = "class Model:\n    def probs(self, x):\n        return torch.softmax(x * 2, dim=-1)\n"
    module = loaded(program(head, body.replace("model(", "Model().probs(")))
    fix = whynan.explain(module.target, X, ROWS, TARGETS, rerun=True).findings[0].fixes[0]
    assert fix.verdict.status == "verified", fix
    assert "loss = -torch.sum(F.log_softmax(logits, -1).gather(1, rows), 0).mean()" in (fix.patch or "")


@pytest.mark.parametrize("why", WRONG)
def test_what_would_be_another_number_is_not_edited(why: str, loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(program(WRONG[why], "p = model(x)\nloss = -torch.log(p.gather(1, rows)).mean()"))
    fixes = explained(module).findings[0].fixes
    assert fixes
    assert not any("return_logits" in (fix.patch or "") for fix in fixes)


@pytest.mark.full
def test_two_functions_of_one_file_are_mended_together(loaded: Callable[[str], ModuleType]) -> None:
    head = SOFTMAX + "\n\ndef entropy(x):\n    p = model(x)\n    return -(p * torch.log(p)).sum(-1).mean()\n"
    body = "p = model(x)\nloss = -torch.log(p.gather(1, rows)).mean() - entropy(x)"
    report = explained(loaded(program(head, body)))
    fix = report.findings[0].fixes[0]
    assert fix.verdict.status == "verified", fix
    assert (fix.patch or "").count("return_logits=True") == 2


@pytest.mark.full
def test_two_files_are_edited_as_one(
    loaded: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = HEAD + SOFTMAX
    loaded(model)
    text = program("from loaded_0 import model\n", "p = model(x)\nloss = -torch.log(p.gather(1, rows)).mean()")
    report = explained(loaded(text))
    fix = report.findings[0].fixes[0]
    assert fix.verdict.status == "verified", fix
    assert [diff.names[1] for diff in read_diffs(fix.patch or "")] == ["loaded_1.py", "loaded_0.py"]
    assert check(report) == sum(bool(one.patch) for finding in report.findings for one in finding.fixes)
