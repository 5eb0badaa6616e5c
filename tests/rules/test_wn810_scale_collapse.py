"""WN810 scale-collapse: what triggers it, what it says, and the trainings that a loss scaler helps as it should."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

import whynan


class Opaque(torch.autograd.Function):
    """An exponential whose derivative goes by a function that no rule knows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * torch.special.erfcx(ctx.saved_tensors[0])


def opaque(weight: Tensor, _: int) -> Tensor:
    return Opaque.apply(weight * 1).sum()  # type: ignore[no-any-return,no-untyped-call]


def norm(weight: Tensor, _: int) -> Tensor:
    return (weight * 0).square().sum().sqrt() + weight.sum()


def every_third(weight: Tensor, step: int) -> Tensor:
    """Bad in each third step only: the scale never rises, and falls all the same."""
    return (weight * (0 if step % 3 == 0 else 1)).square().sum().sqrt()


def large(weight: Tensor, _: int) -> Tensor:
    """Gradients of 2**8 in float16: they overflow from a scale of 2**8 on, and the loss does not."""
    return ((weight + 30)[:1].half() * 2.0**8).float().sum()


def scaled(loss_of: Callable[[Tensor, int], Tensor], steps: int, *, start: float = 16.0, **how: Any) -> Tensor:
    """A training with a loss scaler of torch's."""
    weight = nn.Parameter(torch.full((2,), -30.0))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=start, **how)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        scaler.scale(loss_of(weight, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    return weight.detach()


def by_hand(
    loss_of: Callable[[Tensor, int], Tensor], steps: int, *, sums: bool = False, start: float = 65536.0
) -> Tensor:
    """A training that scales its loss itself: it looks at the gradients, and takes no step of bad ones."""
    weight = nn.Parameter(torch.full((2,), -30.0))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scale = start
    for step in range(1, steps + 1):
        (loss_of(weight, step) * scale).backward()
        assert weight.grad is not None
        seen = float(weight.grad.float().sum()) if sums else 0.0
        if not (math.isfinite(seen) and bool(torch.isfinite(weight.grad).all())):
            scale /= 2
            weight.grad = None
            continue
        weight.grad.div_(scale)
        optimizer.step()
        optimizer.zero_grad()
    return weight.detach()


def half_of_a_model_by_hand() -> Tensor:
    """Weights in float16 and copies in float32 that are trained: it begins at 2**32, and sums up each gradient."""
    torch.manual_seed(0)
    model = nn.Linear(8, 4).half()
    copies = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(copies, lr=1e-3)
    scale = 2.0**32
    for _ in range(30):
        loss = model(torch.randn(4, 8).half()).float().square().mean()
        (loss * scale).backward()
        sums = [float(p.grad.float().sum()) for p in model.parameters() if p.grad is not None]
        if all(math.isfinite(s) for s in sums):
            for copy, p in zip(copies, model.parameters(), strict=True):
                assert p.grad is not None
                copy.grad = p.grad.float() / scale
            optimizer.step()
            for copy, p in zip(copies, model.parameters(), strict=True):
                p.data.copy_(copy.data)
        else:
            scale /= 2
        for p in model.parameters():
            p.grad = None
    assert scale < 2.0**32
    return loss.detach()


TOLD = {
    "nothing else explains it": lambda: scaled(opaque, 9),
    "another rule explains it": lambda: scaled(norm, 9),
    "with a step made between": lambda: scaled(every_third, 24, start=1.0),
    "the scaler is written by hand": lambda: by_hand(norm, 40),
    "it reads the sums": lambda: by_hand(norm, 40, sums=True),
}


@pytest.mark.parametrize("name", TOLD)
def test_it_says_what_happened(name: str, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(TOLD[name])
    assert (said["rule"] == "WN810") is (name == "nothing else explains it")
    assert said == snapshot


def test_another_rule_that_explains_the_birth_speaks_and_this_one_stands_beside_it() -> None:
    finding = whynan.explain(TOLD["another rule explains it"]).findings[0]
    assert (finding.rule, finding.severity, "WN810" in finding.matched) == ("WN308", "error", True)
    assert finding.scale_fall is not None
    assert (finding.scale_fall.skipped, finding.scale_fall.first, finding.scale_fall.last) == (9, 16.0, 2.0**-4)


HEALTHY = {
    "the scale rises until it is too large, again and again": lambda: scaled(large, 24, start=128.0, growth_interval=2),
    "the scale is found from far above": lambda: scaled(large, 24, start=2.0**20),
    "one bad batch now and then": lambda: scaled(every_third, 12),
    "by hand": lambda: by_hand(large, 30),
    "by hand, reading the sums": lambda: by_hand(large, 30, sums=True),
    "by hand, with copies of the weights": half_of_a_model_by_hand,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_scaler_that_finds_its_scale_is_clean(name: str, clean: Callable[..., bool]) -> None:
    assert clean(HEALTHY[name])


@pytest.mark.parametrize("name", HEALTHY)
def test_it_is_clean_in_a_watch_too(name: str) -> None:
    with whynan.watch() as w:
        HEALTHY[name]()
    assert w.report.verdict == "clean", w.report


@pytest.mark.proof
@pytest.mark.parametrize("fused", [False, True])
def test_a_watch_names_the_birth_and_how_far_the_scale_fell(fused: bool, snapshot: SnapshotAssertion) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu")
    with whynan.watch(optimizer, quiet=True) as w:
        for step in range(1, 40):
            optimizer.zero_grad()
            scaler.scale(norm(weight, step)).backward()
            scaler.step(optimizer)
            scaler.update()
    finding = w.report.findings[0]
    assert w.report.run.replay.faithful
    assert (finding.step, w.report.coverage.skipped_steps) == (17, 17)
    assert f"{finding.rule} {finding.message}\n{finding.explanation}" == snapshot


@pytest.mark.full
@pytest.mark.breadth
def test_the_report_of_a_later_failure_counts_the_steps_that_were_skipped() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with whynan.watch(optimizer, quiet=True) as w:
        for step in range(1, 10):
            optimizer.zero_grad()
            loss = ((weight * 4 + 3).sum() * (-1 if step == 9 else 1)).log() * 4
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert (w.report.verdict, w.report.findings[0].rule) == ("nonfinite", "WN202")
    assert w.report.coverage.skipped_steps >= 2
    assert "skipped by the loss scaler" in str(w.report)
