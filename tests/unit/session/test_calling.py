"""A second run of a target: from the same state, told where it was not faithful, and leaving the state of the first."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whynan
from whynan.records import Report


def overwritten(x: Tensor) -> Tensor:
    """A foreach operation overwrites its operand in place, and no copy was taken before."""
    y = x - 2
    torch._foreach_log_([y])
    return y


def test_a_value_that_was_gone_is_had_from_the_second_run() -> None:
    x = torch.ones(3)
    once, twice = whynan.explain(overwritten, x), whynan.explain(overwritten, x, rerun=True)
    assert [o.origin for o in once.findings[0].element.operands] == ["gone"]
    (operand,) = twice.findings[0].element.operands
    assert (operand.origin, operand.value) == ("rerun", -1.0)
    assert (twice.run.replay.kind, twice.run.replay.faithful) == ("rerun", True)
    assert "log(-1) is NaN" in twice.findings[0].message


def _replayed(report: Report) -> tuple[bool | None, str]:
    assert report.run.replay.kind == "rerun"
    return report.run.replay.faithful, str(report.run.replay.why)


def test_a_target_that_is_not_deterministic_is_not_believed() -> None:
    calls: list[int] = []

    def target(x: Tensor) -> Tensor:
        calls.append(1)
        return (x * len(calls)).log()

    faithful, why = _replayed(whynan.explain(target, torch.tensor([-1.0, 2.0]), rerun=True))
    assert (faithful, len(calls)) == (False, 2)
    assert "not deterministic" in why


def test_a_target_that_runs_other_operations_the_second_time_is_not_believed() -> None:
    calls: list[int] = []

    def target(x: Tensor) -> Tensor:
        calls.append(1)
        for _ in calls:
            x.exp()
        return x.log()

    faithful, why = _replayed(whynan.explain(target, torch.tensor([-1.0]), rerun=True))
    assert (faithful, why) == (False, "the second run had 5 events, the first 4")


def test_a_second_run_that_raises_leaves_the_first_ones_report() -> None:
    calls: list[int] = []

    def target(x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("only once")
        return x.log()

    report = whynan.explain(target, torch.tensor([-1.0]), rerun=True)
    assert report.verdict == "nonfinite"
    assert _replayed(report) == (False, "the second run raised KeyError: 'only once'")


@pytest.mark.parametrize("module", [True, False])
def test_the_second_run_starts_from_the_state_of_the_first_and_leaves_its_end(module: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x = torch.randn(4, 2)
    seen: list[list[object]] = []

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        seen.append([loss.item(), random.random(), float(np.random.rand()), torch.rand(1).item()])
        return loss

    def bare() -> list[Tensor]:
        return [t.detach().clone() for t in model.state_dict().values()]

    if module:
        report = whynan.explain(model, x, rerun=True)
        assert _replayed(report)[0] is True
        assert int(model[1].num_batches_tracked) == 1
        return
    report = whynan.explain(step, rerun=True)
    assert _replayed(report)[0] is True
    assert seen[0] == seen[1]
    after = bare()
    assert optimizer.state[model[0].weight]["step"].item() == 1
    # the run goes on as after one call
    torch.manual_seed(0)
    other = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    other_optimizer = torch.optim.Adam(other.parameters(), lr=0.1)
    y = torch.randn(4, 2)
    loss = other(y).square().sum()
    loss.backward()
    other_optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(after, other.state_dict().values(), strict=True))


def test_the_target_is_called_once_without_rerun_and_twice_with_it() -> None:
    calls: list[int] = []
    whynan.explain(lambda: calls.append(1))
    assert len(calls) == 1
    whynan.explain(lambda: calls.append(1), rerun=True)
    assert len(calls) == 3
