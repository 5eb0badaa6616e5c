"""Losses that a loss scaler makes and skips, and losses that no scale cures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.capture.seen import code, only, sinks, traced


def scaled(loss_of: Callable[[Tensor, int], Tensor], scale: float, weight: Any = None, steps: int = 3) -> Any:
    """A program that trains with a scaler of this scale."""
    weight = nn.Parameter(torch.ones(2)) if weight is None else weight
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def program() -> None:
        for step in range(steps):
            optimizer.zero_grad()
            scaler.scale(loss_of(weight, step)).backward()
            scaler.step(optimizer)
            scaler.update(scale)

    return program


def test_a_loss_that_is_bad_before_it_is_scaled_is_a_sink_although_the_step_is_skipped() -> None:
    report = traced(scaled(lambda w, step: (w * (-1 if step == 1 else 1)).sqrt().sum(), 4.0))
    finding = only(report)
    assert (code(finding), finding.severity, finding.step) == ("(w * (-1 if step == 1 else 1)).sqrt()", "error", 2)
    assert sinks(finding) == {("loss", None)}
    assert (report.verdict, report.coverage.skipped_steps) == ("nonfinite", 1)


@pytest.mark.parametrize(
    ("name", "loss_of", "scale"),
    [
        ("the scale makes the loss Inf", lambda w, _: w.sum() * 8, 2.0**127),
        ("the scale makes a gradient Inf", lambda w, _: (w * 1e10).sum() * 1e-9, 2.0**125),
        ("the backward makes a gradient Inf", lambda w, step: (w * (step != 1)).sqrt().sum(), 4.0),
    ],
)
def test_what_a_scale_may_cure_is_skipped(name: str, loss_of: Any, scale: float) -> None:
    report = traced(scaled(loss_of, scale))
    assert (report.verdict, report.findings) == ("clean", ()), name
    assert report.coverage.skipped_steps >= 1
