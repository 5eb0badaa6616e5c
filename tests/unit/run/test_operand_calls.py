"""An operand of the call at fault, given otherwise: a row of an attention's mask, a sample at the end of a support."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution

import whynan
from whynan.rules import arguments
from whynan.verify.in_place.live_calls import OperandCalls

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.records import Fix

pytestmark = pytest.mark.proof

ATTENTION = """
import torch
from torch import nn

torch.manual_seed(0)
attention = nn.MultiheadAttention(8, 2, batch_first=True)
x = torch.randn(3, 4, 8)
pad = torch.zeros(3, 4, dtype=torch.bool)
pad[1] = True
mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).tril().bool(), -torch.inf)

def train():
    out, _ = attention(x, x, x, MASK)
    loss = out.pow(2).mean()
    loss.backward()
    return loss
"""
SAMPLES = """
import torch
from torch import nn
from torch.distributions import Beta, Gamma, Normal, TanhTransform, TransformedDistribution

torch.manual_seed(0)
net = nn.Linear(3, 2)
x = torch.randn(16, 3)
y = torch.rand(16)
y[4] = SAMPLE

def train():
    a, b = nn.functional.softplus(net(x)).add(1).unbind(-1)
    loss = -DISTRIBUTION.log_prob(y).mean()
    loss.backward()
    return loss
"""
TANH = "TransformedDistribution(Normal(a, b), [TanhTransform()])"


def fixes_of(module: ModuleType) -> list[Fix]:
    """The changes of the first finding that have a patch."""
    report = whynan.explain(module.train, rerun=True)
    return [fix for fix in report.findings[0].fixes if fix.patch]


def added(fix: Fix) -> str:
    (line,) = [line[1:].strip() for line in (fix.patch or "").splitlines() if line[:1] == "+" and line[:3] != "+++"]
    return line


@pytest.mark.parametrize(
    ("mask", "line"),
    [
        (
            "key_padding_mask=pad",
            "attention(x, x, x, key_padding_mask=torch.masked_fill(pad, torch.all(pad, dim=-1, keepdim=True), False))",
        ),
        ("pad", "out, _ = attention(x, x, x, torch.masked_fill(pad, torch.all(pad, dim=-1, keepdim=True), False))"),
        (
            "attn_mask=mask",
            "out, _ = attention(x, x, x, attn_mask=torch.clamp(mask, min=torch.finfo(mask.dtype).min))",
        ),
        (
            "attn_mask=mask.isinf()",
            "attention(x, x, x, attn_mask=operand.masked_fill(operand.all(dim=-1, keepdim=True), False))",
        ),
    ],
)
def test_a_row_that_is_masked_whole(mask: str, line: str, loaded: Callable[[str], ModuleType]) -> None:
    (fix, *_) = fixes_of(loaded(ATTENTION.replace("MASK", mask)))
    assert fix.verdict.status == "guarded"
    assert line in (fix.patch or "")
    assert fix.verdict.why.startswith("what a row that is masked whole attends to is no number of any meaning; ")


TWO_MASKS = (
    ATTENTION.replace("pad[1] = True", "pad[1, :2] = True")
    .replace(".tril()", ".triu(1)")
    .replace("MASK", "key_padding_mask=pad, attn_mask=mask.isinf()")
)


def test_a_row_of_which_two_masks_leave_nothing(loaded: Callable[[str], ModuleType]) -> None:
    (fix, *_) = fixes_of(loaded(TWO_MASKS))
    assert fix.verdict.status == "guarded"
    assert "attn_mask=torch.where(mask.isinf(), -3e+38, 0.0)" in (fix.patch or "")


@pytest.mark.parametrize(
    ("distribution", "sample", "operand"),
    [
        ("Beta(a, b)", "1.0", "torch.where(y == 0, torch.finfo(y.dtype).eps / 2, torch.where(y == 1, "),
        ("Beta(a, b)", "0.0", "torch.where(y == 0, torch.finfo(y.dtype).eps / 2, torch.where(y == 1, "),
        ("Gamma(a, b)", "0.0", "torch.where(y == 0, torch.finfo(y.dtype).tiny, y)"),
        (TANH, "-1.0", "torch.where(torch.abs(y) == 1, torch.sign(y) * (1 - torch.finfo(y.dtype).eps / 2), y)"),
    ],
)
def test_a_sample_at_the_end_of_a_support(
    distribution: str, sample: str, operand: str, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(SAMPLES.replace("DISTRIBUTION", distribution).replace("SAMPLE", sample))
    (fix, *_) = fixes_of(module)
    assert fix.verdict.status in ("guarded", "verified")
    assert operand in added(fix)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (ATTENTION.replace("MASK", "key_padding_mask=pad"), "masked_fill(x, x, False)"),
        (ATTENTION.replace("MASK", "key_padding_mask=pad"), "masked_fill(x, all(x), False)"),
        pytest.param(TWO_MASKS, "where(x, -3.0, 0.0)", marks=pytest.mark.full),
        pytest.param(TWO_MASKS, "where(x, 0.0, -3e38)", marks=pytest.mark.full),
        pytest.param(TWO_MASKS, "zeros_like(x)", marks=pytest.mark.full),
        (SAMPLES.replace("DISTRIBUTION", "Beta(a, b)").replace("SAMPLE", "1.0"), "clamp(x, min=0.05, max=0.95)"),
        (SAMPLES.replace("DISTRIBUTION", "Gamma(a, b)").replace("SAMPLE", "0.0"), "clamp(x, min=0.05)"),
    ],
)
def test_an_operand_that_moves_what_is_healthy_or_mends_nothing_is_refused(
    text: str, wrong: str, loaded: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: the rows of another catalogue."""
    rows = tuple(replace(row, replacement=wrong) for row in arguments.OPERANDS)
    monkeypatch.setattr(arguments, "OPERANDS", rows)
    statuses = {fix.verdict.status for fix in fixes_of(loaded(text)) if fix.title in {row.title for row in rows}}
    assert statuses == {"rejected"}


def test_a_program_without_such_a_call_has_no_such_change(loaded: Callable[[str], ModuleType]) -> None:
    text = ATTENTION.replace(
        "attention(x, x, x, MASK)", "(x @ x.mT).masked_fill(pad[:, None], -torch.inf).softmax(-1), 0"
    )
    module = loaded(text.replace("x = torch", "x = nn.Parameter(torch.ones(3, 4, 8)); _ = torch"))
    titles = {row.title for row in arguments.OPERANDS}
    assert not any(fix.title in titles for fix in fixes_of(module))


def test_what_a_distribution_remembers_is_as_it_was() -> None:
    """A transform that caches gives the exact inverse of what it gave last: a proof asks copies."""
    (row,) = [row for row in arguments.OPERANDS if "TransformedDistribution" in row.classes[0]]
    base = Normal(torch.zeros(300), torch.ones(300))
    made = TransformedDistribution(base, [TanhTransform(cache_size=1)])
    calls = OperandCalls([row])
    y = made.sample()
    with calls.heard():
        before = log_prob_of_users(made, y)
        log_prob_of_users(made, torch.ones(300))
    made.transforms[0](y.atanh())
    remembered = made.transforms[0]._cached_x_y
    verdict = calls.verdict(row)
    assert verdict is not None
    assert made.transforms[0]._cached_x_y is remembered
    assert before.isfinite().all()


def log_prob_of_users(made: TransformedDistribution, y: torch.Tensor) -> torch.Tensor:
    """A call of the program's own code."""
    return made.log_prob(y)


def test_a_wrong_call_says_what_is_wrong_with_it() -> None:
    (row,) = [row for row in arguments.OPERANDS if "TransformedDistribution" in row.classes[0]]
    made = TransformedDistribution(Normal(0.0, 1.0), [TanhTransform()])
    with OperandCalls([row]).heard(), pytest.raises(TypeError, match=r"log_prob\(\) missing 1 required"):
        made.log_prob()
    assert "log_prob" in vars(TransformedDistribution)
    assert not hasattr(TransformedDistribution.log_prob, "__wrapped__")


def test_a_mean_loss_of_operands_that_are_broadcast_counts_the_whole(loaded: Callable[[str], ModuleType]) -> None:
    text = """
import torch
import torch.nn.functional as F

def loss_of(x, y):
    return F.l1_loss(x, y)

def train():
    whole = torch.ones(3, 1, requires_grad=True)
    loss = loss_of(whole, torch.zeros(3, 4)) + loss_of(whole[:0], torch.zeros(0, 4))
    loss.backward()
    return loss
"""
    fixes = [fix for fix in fixes_of(loaded(text)) if fix.verdict.status == "guarded"]
    assert fixes
    assert not any("x.numel()" in (fix.patch or "") for fix in fixes)
