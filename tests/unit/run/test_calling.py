"""A second run of a target: from the same state, told where it was not faithful, and leaving the state of the first."""

from __future__ import annotations

import itertools
import queue
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whynan
from whynan.records import Report
from whynan.run.explained_call import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType


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
    calls = itertools.count(1)

    def target(x: Tensor) -> Tensor:
        return (x * next(calls)).log()

    faithful, why = _replayed(whynan.explain(target, torch.tensor([-1.0, 2.0]), rerun=True))
    assert (faithful, next(calls)) == (False, 3)
    assert "not deterministic" in why


def test_a_target_that_runs_other_operations_the_second_time_is_not_believed() -> None:
    calls = itertools.count(1)

    def target(x: Tensor) -> Tensor:
        for _ in range(next(calls)):
            x.exp()
        return x.log()

    faithful, why = _replayed(whynan.explain(target, torch.tensor([-1.0]), rerun=True))
    assert (faithful, why) == (False, "the second run had 5 events, the first 4")


def test_a_second_run_that_raises_leaves_the_first_ones_report() -> None:
    calls = itertools.count(1)

    def target(x: Tensor) -> Tensor:
        if next(calls) == 2:
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
    seen: queue.Queue[list[object]] = queue.Queue()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        seen.put([loss.item(), random.random(), float(np.random.rand()), torch.rand(1).item()])
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
    assert seen.get() == seen.get()
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
    calls: queue.Queue[int] = queue.Queue()
    whynan.explain(lambda: calls.put(1))
    assert calls.qsize() == 1
    whynan.explain(lambda: calls.put(1), rerun=True)
    assert calls.qsize() == 3


LOGARITHM = """import torch


def popped(batches, x):
    batch = batches.pop(0)
    return torch.log(batch * x)


def taken(batches, x):
    return torch.log(next(batches) * x)


def drained(batches, x):
    return torch.log(torch.stack(list(batches)) * x)


def counted(counts, x):
    counts["calls"] += 1
    return torch.log(x * (counts["calls"] - 1))
"""
BATCHES = (torch.tensor([0.0, 1.0]), *(torch.tensor([1.0, 1.0]) for _ in range(3)))


def _proved(report: Report) -> list[str]:
    assert _replayed(report)[0] is True
    return [fix.verdict.status for fix in report.findings[0].fixes]


@pytest.mark.proof
def test_each_call_finds_a_list_as_the_first_did(loaded: Callable[[str], ModuleType]) -> None:
    batches = list(BATCHES)
    assert _proved(whynan.explain(loaded(LOGARITHM).popped, batches, torch.ones(2), rerun=True))[0] == "guarded"
    assert len(batches) == 3


@pytest.mark.proof
def test_each_call_finds_an_attribute_as_the_first_did(loaded: Callable[[str], ModuleType]) -> None:
    counts = {"calls": 0}
    whynan.explain(loaded(LOGARITHM).counted, counts, torch.ones(2), rerun=True)
    assert counts == {"calls": 1}


@pytest.mark.proof
def test_each_call_takes_the_same_from_an_iterator_of_a_list(loaded: Callable[[str], ModuleType]) -> None:
    batches = iter(list(BATCHES))
    assert _proved(whynan.explain(loaded(LOGARITHM).taken, batches, torch.ones(2), rerun=True))[0] == "guarded"
    assert len(list(batches)) == 3


@pytest.mark.parametrize("kind", ["generator", "ended"])
def test_what_is_taken_from_an_iterator_that_cannot_be_put_back_is_said(
    kind: str, loaded: Callable[[str], ModuleType]
) -> None:
    def given() -> Iterator[Tensor]:
        yield from BATCHES

    module = loaded(LOGARITHM)
    if kind == "generator":
        batches, target, name = given(), module.taken, "a generator"
    else:
        batches, target, name = iter([BATCHES[0]]), module.drained, "a list iterator"
    report = whynan.explain(target, batches, torch.ones(2), rerun=True)
    faithful, why = _replayed(report)
    assert faithful is False
    assert f"it takes from {name}, which goes on from where it is" in why
    assert {fix.verdict.why for fix in report.findings[0].fixes} == {why}


def test_a_call_for_a_fix_runs_as_it_is_written_and_leaves_the_stance_of_the_program() -> None:
    import torch._dynamo.eval_frame as frames

    stances: list[str] = []
    call = Call(lambda: stances.append(frames._stance.stance), (), {})
    call.run(whynan.trace().watching)
    call.call_for_fix(whynan.trace().watching)
    assert (stances, frames._stance.stance) == (["default", "force_eager"], "default")
