"""What the text constructs need not be what is called: then no fix that is made of the text is proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import whynan
from whynan.records import APPLICABLE
from whynan.verify.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = pytest.mark.proof

MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, y):
        return self.loss(x, y)


model = Model()
CHANGE


def target(x, y):
    return model(x, y)
"""
IGNORED = torch.full((6,), -100)
SCORES = torch.linspace(-2, 2, 30).reshape(6, 5)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("", None),
        ("model.loss.label_smoothing = 0.3", "self.loss has another label_smoothing than it was constructed with"),
        (
            "model.loss = nn.CrossEntropyLoss(weight=torch.arange(1.0, 6))",
            "self.loss has another weight than it was constructed with",
        ),
        (
            "model.loss.register_forward_hook(lambda module, given, made: 3 * made)",
            "self.loss is no plain CrossEntropyLoss where it is called",
        ),
        ("model.loss = nn.NLLLoss()", "self.loss is no plain CrossEntropyLoss where it is called"),
    ],
)
def test_a_loss_that_is_another_than_its_text_is_not_proved(
    loaded: Callable[[str], ModuleType], change: str, why: str | None
) -> None:
    module = loaded(MODEL.replace("CHANGE", change))
    found = whynan.explain(module.target, SCORES, IGNORED, rerun=True).findings[0].fixes
    applicable = [fix for fix in found if fix.verdict.status in APPLICABLE]
    assert bool(applicable) == (why is None), found
    assert why is None or why in {fix.verdict.why for fix in found}


def test_a_divisor_that_counts_other_targets_is_wrong() -> None:
    scores = torch.nn.functional.cross_entropy

    def summed(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return scores(x, t, reduction="sum")

    given = [{"x": SCORES.clone().requires_grad_(), "t": IGNORED}]
    right = judge(scores_of, lambda x, t: summed(x, t) / (t != -100).sum().clamp(min=1), given, kind="reformulation")
    assert right.status == "guarded", right
    for wrong in (
        lambda x, t: summed(x, t) / max(len(t), 1),
        lambda x, t: summed(x, t) / (t > 0).sum().clamp(min=1),
        lambda x, t: summed(x, t) / (t != -100).sum().clamp(min=3),
    ):
        assert judge(scores_of, wrong, given, kind="guard").status not in APPLICABLE


def scores_of(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(x, t)


def test_a_number_of_pythons_is_tried_as_several_others() -> None:
    given = [{"x": torch.rand(4, 3), "n": 0}]

    def mean(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.sum() / n

    assert judge(mean, lambda x, n: x.sum() / (n or 1), given, kind="guard").status == "guarded"
    for wrong in (lambda x, n: x.sum() / max(n, 4), lambda x, n: x.sum() / x.shape[0]):
        assert judge(mean, wrong, given, kind="guard").status not in APPLICABLE


def test_at_the_edge_of_a_domain_only_the_limit_is_right() -> None:
    def product(p: torch.Tensor) -> torch.Tensor:
        return p * p.log()

    given = [{"p": torch.tensor([0.0, 0.25, 0.5, 0.25])}]
    right = judge(product, lambda p: torch.where(p == 0, 0, product(torch.where(p == 0, 1, p))), given, kind="guard")
    wrong = judge(product, lambda p: torch.where(p == 0, 0.3, product(torch.where(p == 0, 1, p))), given, kind="guard")
    assert right.status in APPLICABLE, right
    assert wrong.status == "rejected", wrong


def test_the_gradient_of_one_visit_is_stated_whatever_that_of_another_is() -> None:
    def both(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return a.log() + c.sqrt()

    def mended(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        least = torch.finfo(a.dtype).tiny
        root = torch.where(c == 0, 0, torch.where(c == 0, 1, c).sqrt())
        return torch.where(a == 0, least, a).log() + root

    visits = [
        {name: torch.tensor(values, requires_grad=True) for name, values in visit.items()}
        for visit in ({"a": [0.0, 1.0], "c": [1.0, 2.0]}, {"a": [1.0, 2.0], "c": [0.0, 1.0]})
    ]
    found = judge(both, mended, visits, kind="guard")
    assert [(s.output, s.lack) for s in found.stand_ins] == [(0, "infinite"), (None, "infinite")]
