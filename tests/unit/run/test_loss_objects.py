"""What the program constructed elsewhere, or keeps as a number of Python's, stands in the way of no fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import whynan

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.records.report import Fix

pytestmark = pytest.mark.proof

IGNORED = torch.zeros(6, dtype=torch.int64)
SCORES = torch.linspace(-2, 2, 30).reshape(6, 5)

AT_MODULE_LEVEL = """import torch
import torch.nn.functional as F

PAD = 0
criterion = torch.nn.CrossEntropyLoss(ignore_index=PAD)


def target(x, y):
    return criterion(x, y)
"""
OF_A_CLASS = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, pad):
        super().__init__()
        self.pad = pad
        self.loss = nn.NLLLoss(ignore_index=self.pad)

    def forward(self, x, y):
        return self.loss(x.log_softmax(-1), y)


model = Model(0)


def target(x, y):
    return model(x, y)
"""
FUNCTION = """import torch
import torch.nn.functional as F


def target(x, y):
    return F.cross_entropy(x, y, ignore_index=0, reduction="mean")
"""
REBOUND = AT_MODULE_LEVEL.replace("\n\n\ndef", "\ncriterion = torch.nn.CrossEntropyLoss(ignore_index=PAD)\n\n\ndef")


def fixes(module: ModuleType, *given: torch.Tensor) -> tuple[Fix, ...]:
    return whynan.explain(module.target, *given, rerun=True).findings[0].fixes


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (AT_MODULE_LEVEL, "F.cross_entropy(x, y, ignore_index=criterion.ignore_index, reduction='sum') / "),
        (OF_A_CLASS, "nll_loss(x.log_softmax(-1), y, ignore_index=self.loss.ignore_index, reduction='sum') / "),
        (FUNCTION, "F.cross_entropy(x, y, ignore_index=0, reduction='sum') / "),
    ],
)
def test_a_mean_over_no_targets_is_mended_however_the_loss_is_called(
    loaded: Callable[[str], ModuleType], text: str, written: str
) -> None:
    found = fixes(loaded(text), SCORES.clone().requires_grad_(), IGNORED)[0]
    assert found.verdict.status == "guarded", found.verdict
    assert next((s.lack, s.least, s.greatest) for s in found.verdict.stand_ins) == ("undefined", 0, 0)
    assert written in (found.patch or "")


def test_a_loss_that_is_set_twice_is_no_known_function(loaded: Callable[[str], ModuleType]) -> None:
    assert not [one for one in fixes(loaded(REBOUND), SCORES, IGNORED) if one.verdict.status == "guarded"]


NUMBER = """import torch


def target(x):
    count = int((x > 0).sum())
    return x.relu().sum() / count
"""


def test_a_count_of_pythons_is_chosen_by_an_expression_of_pythons(loaded: Callable[[str], ModuleType]) -> None:
    found = fixes(loaded(NUMBER), -torch.rand(5, requires_grad=True))[0]
    assert found.verdict.status == "guarded", found.verdict
    assert "/ (1 if count == 0 else count)" in (found.patch or "")


GRADIENT = """import torch

p = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))


def target(x):
    with torch.no_grad():
        return p.grad / x
"""


def test_a_gradient_that_a_formula_reads_is_one_of_its_inputs(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(GRADIENT)
    module.p.grad = torch.tensor([0.0, 1.0, -1.0])
    found = fixes(module, torch.tensor([0.0, 1.0, 2.0]))[0]
    assert found.verdict.status in ("verified", "guarded"), found.verdict
    assert "p.grad / torch.where(x == 0, 1, x)" in (found.patch or "")
