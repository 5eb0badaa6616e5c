"""WN004 spoilt-before: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn

import whynan
from whynan.records import Report


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """The gradients of the second weight are 0."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.tensor([[1.0, 0.0]])).sum().backward()
        optimizer.step()


def _watched(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> Report:
    with whynan.watch(optimizer, quiet=True) as w:
        train(model, optimizer, steps)
    return w.report


def _linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(2, 3, bias=False)


def an_update_that_divides_by_zero() -> Report:
    model = _linear()
    return _watched(model, torch.optim.Adam(model.parameters(), lr=0.1, eps=0.0))


def an_update_that_is_out_of_range() -> Report:
    model = _linear()
    return _watched(model, torch.optim.SGD(model.parameters(), lr=3e38, weight_decay=1e38))


def a_weight_that_was_loaded() -> Report:
    model = _linear()
    with torch.no_grad():
        next(iter(model.parameters()))[0, 1] = float("nan")
    return _watched(model, torch.optim.SGD(model.parameters(), lr=0.1))


def statistics_of_a_bad_batch() -> Report:
    model = nn.Sequential(nn.BatchNorm1d(2), _linear())
    with torch.no_grad():
        model(torch.tensor([[1.0, float("nan")], [2.0, 3.0]]))
    model.eval()
    return _watched(model, torch.optim.SGD(model.parameters(), lr=0.1))


def an_update_with_an_eps() -> Report:
    model = _linear()
    return _watched(model, torch.optim.Adam(model.parameters(), lr=0.1))


@pytest.mark.parametrize(
    "program",
    [
        an_update_that_divides_by_zero,
        an_update_that_is_out_of_range,
        a_weight_that_was_loaded,
        statistics_of_a_bad_batch,
    ],
)
def test_it_says_what_happened(program: Callable[[], Report], snapshot: SnapshotAssertion) -> None:
    report = program()
    assert report.verdict == "nonfinite", report.coverage.notes
    (finding,) = (f for f in report.findings if f.rule == "WN004")
    assert {"message": finding.message, "explanation": finding.explanation, "notes": report.coverage.notes} == snapshot


def test_the_healthy_twin_is_clean() -> None:
    assert an_update_with_an_eps().verdict == "clean"
