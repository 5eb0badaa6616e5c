"""Rewrites that rules propose, proved in programs that have the expression in other spellings."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import pytest
import torch

import whynan
from whynan.run.proof.local_proof import filled_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = pytest.mark.proof

ROOTS = """import torch


def correlation(x, y):
    dx, dy = x - x.mean(0), y - y.mean(0)
    a, b = A, B
    product = a * b
    return (dx * dy).mean(0) / torch.sqrt(product)


def target(x, y):
    out = correlation(x, y).sum()
    out.backward()
    return out
"""


NOTHING = """import torch


def target(x):
    return torch.mean(x[x > 9])
"""


def test_an_idea_that_holds_is_told_once(loaded: Callable[[str], ModuleType]) -> None:
    report = whynan.explain(loaded(NOTHING).target, torch.ones(3, requires_grad=True), rerun=True)
    told = [fix.title for fix in report.findings[0].fixes if fix.verdict.status == "guarded"]
    assert told
    assert len(told) == len(set(told))


def small_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Columns whose variances are so small that their product has no room, or almost none."""
    torch.manual_seed(0)
    scales = torch.tensor([1.0, 1e-11])
    return (torch.randn(8, 2) * scales).requires_grad_(), torch.randn(8, 2) * scales


@pytest.mark.parametrize(
    ("a", "b", "status"),
    [
        ("(dx * dx).mean(0)", "(dy * dy).mean(0)", "verified"),
        ("dx.square().sum(0) / 8", "(dy**2).sum(0) / 8", "verified"),
        # of what may be below 0 the root of each is another function
        ("dx.abs().mean(0) * dx[0]", "dy.abs().mean(0) * dx[0]", "rejected"),
    ],
)
def test_the_root_of_a_product_is_that_of_its_factors(
    a: str, b: str, status: str, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(ROOTS.replace("A", a, 1).replace("B", b, 1))
    report = whynan.explain(module.target, *small_inputs(), rerun=True)
    fix = next(f for f in report.findings[0].fixes if f.title.startswith("sqrt(a) * sqrt(b)"))
    assert fix.verdict.status == status, fix.verdict.why
    if status == "verified":
        assert fix.patch is not None
        assert re.search(r"\+ .* / \((a\.sqrt\(\) \* b\.sqrt\(\)|torch\.sqrt\(a\) \* torch\.sqrt\(b\))\)", fix.patch)


SUPPORT = """import torch


def target(x):
    y = torch.lgamma(3 - x)
    invalid = x > 2
    return y.masked_fill(invalid, FILL)


def run(x):
    target(x).exp().sum().backward()
"""


@pytest.mark.parametrize("fill", ['-float("inf")', "-torch.inf", "0.0"])
def test_a_mask_that_is_made_below_is_written_out_and_its_infinity_is_meant(
    fill: str, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(SUPPORT.replace("FILL", fill))
    report = whynan.explain(module.run, torch.tensor([0.5, 3.0, 1.0], requires_grad=True), rerun=True)
    (fix,) = [fix for finding in report.findings for fix in finding.fixes if fix.title.startswith("a harmless operand")]
    assert fix.verdict.status == "verified", fix.verdict.why
    assert "torch.lgamma(torch.where(x > 2, 1, 3 - x))" in (fix.patch or "")


@pytest.mark.parametrize(
    ("body", "infinity"),
    [
        ("return y.masked_fill(m, float('-inf'))", -math.inf),
        ("return torch.where(m, y, math.inf)", math.inf),
        ("return torch.where(m, y, 0.0)", None),
        ("y = x.masked_fill(m, -torch.inf)\nreturn y.exp()", None),
    ],
)
def test_an_infinity_is_meant_where_a_mask_puts_it_last(body: str, infinity: float | None) -> None:
    assert filled_with(body) == infinity


MEDIAN = """import torch


def target(x, hidden):
    middle, _ = x.masked_fill(hidden, float("nan")).nanmedian(dim=-1, keepdim=True)
    loss = middle.sum()
    loss.backward()
    return loss
"""


def test_a_row_that_has_nothing_left_has_a_median_of_zero(loaded: Callable[[str], ModuleType]) -> None:
    hidden = torch.tensor([[True, True, True], [True, False, False]])
    report = whynan.explain(loaded(MEDIAN).target, torch.rand(2, 3, requires_grad=True), hidden, rerun=True)
    fix = report.findings[0].fixes[0]
    assert (fix.verdict.status, fix.title) == ("guarded", "0 where a row has nothing left")
