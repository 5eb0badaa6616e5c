"""Losses on whose finiteness a program decides, in a trace: fatal; those that it merely reads are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whynan
from tests.unit.capture.seen import traced

ZERO = torch.zeros(3)


def loss_of(layer: nn.Module) -> Any:
    return torch.log(layer(ZERO.unsqueeze(0)) * 0).mean()


def train(guard: Callable[[Any], bool], loss_: Callable[[nn.Module], Any] = loss_of) -> None:
    """A loop that is left where its guard says so."""
    layer = nn.Linear(3, 1)
    for _ in range(2):
        loss = loss_(layer)
        if guard(loss):
            break
        loss.backward()


def is_bad(loss: Any) -> bool:
    return bool(torch.isnan(loss) or torch.isinf(loss))


def reduced(loss: Any) -> bool:
    with torch.no_grad():
        losses = {"a": loss, "b": loss}
        both = torch.stack(list(losses.values())).sum() / 2
    return not math.isfinite(both.item())


GUARDS: dict[str, Callable[[Any], bool]] = {
    "item": lambda loss: not math.isfinite(loss.item()),
    "float": lambda loss: math.isinf(float(loss)),
    "math": lambda loss: not math.isfinite(loss.detach()),
    "numpy": lambda loss: not np.isfinite(loss.item()),
    "array": lambda loss: not np.isfinite(loss.detach().cpu().numpy()),
    "isfinite": lambda loss: not torch.isfinite(loss),
    "method": lambda loss: loss.isnan() or loss.isinf(),
    "any": lambda loss: torch.isinf(loss).any(),
    "all": lambda loss: not torch.isfinite(loss).all(),
    "itself": lambda loss: loss != loss or loss == -math.inf,
    "comparison": lambda loss: not (loss > -1e8),
    "number": lambda loss: loss.item() < -1e8,
    "helper": is_bad,
    "reduced": reduced,
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_loop_that_is_left_because_the_loss_is_bad_is_an_error(name: str) -> None:
    report = traced(lambda: train(GUARDS[name]))
    (finding,) = report.findings
    assert (report.verdict, finding.severity, finding.op) == ("nonfinite", "error", "aten.log.default")
    assert ("loss", None) in {(reach.kind, reach.name) for reach in finding.reaches}
    (link,) = [link for link in finding.chain if link.role == "sink" and link.site is not None]
    assert link.summary == "leaves its loop because the loss is -Inf"


def test_a_loss_that_ends_the_program_is_an_error() -> None:
    with ExitStack() as stack:
        # said so, it is nothing that the program is known to expect
        stack.enter_context(pytest.raises(AssertionError))
        trace = stack.enter_context(whynan.trace())
        loss = loss_of(nn.Linear(3, 1))
        assert torch.isfinite(loss)
    (finding,) = trace.report.findings
    assert (trace.report.verdict, finding.op) == ("nonfinite", "aten.log.default")
    assert "ends the program because the loss is -Inf" in [link.summary for link in finding.chain]


def evaluation(_: Any) -> None:
    with torch.no_grad():
        for rows in (0, 1):
            accuracy = torch.ones(rows).mean()
            if torch.isnan(accuracy):
                continue
            print(accuracy)


HEALTHY: dict[str, Callable[[], Any]] = {
    "a print": lambda: print(torch.isnan(torch.log(torch.zeros(2))).any()),
    "an evaluation": lambda: evaluation(None),
    "nan_to_num": lambda: train(
        lambda loss: not torch.isfinite(torch.nan_to_num(loss, neginf=0.0)), lambda layer: layer(ZERO).square().mean()
    ),
    "a guard of a finite loss": lambda: train(is_bad, lambda layer: layer(ZERO).square().mean()),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_tested_and_not_decided_on_is_clean(name: str) -> None:
    """The twins: the same tests where nothing is a loss, or nothing comes of it."""
    assert traced(HEALTHY[name]).verdict == "clean"
