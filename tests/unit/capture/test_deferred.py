"""Events that wait for a sink, as those on an accelerator do: the same findings, and not one wait per operation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import whynan
from whynan.capture.torch import accelerator as deferred
from whynan.capture.torch.tracer import Tracer


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracer, "defers", True)


def _read(report: whynan.Report) -> list[tuple[object, ...]]:
    return [
        (
            *(f.rule, f.op, f.phase, f.birth, f.site and f.site.code, f.element.index, f.element.count, f.grad_fn),
            *(o.value for o in f.element.operands),
        )
        for f in report.findings
    ]


def forward() -> torch.Tensor:
    x = torch.tensor([1.0, -1.0], requires_grad=True)
    y = torch.log(x)
    y.sum().backward()
    return y


def backward() -> torch.Tensor:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    torch.where(x > 0, x.sqrt(), x).sum().backward()
    assert x.grad is not None
    return x.grad


def in_place() -> torch.Tensor:
    x = torch.tensor([1e38, 1.0])
    x.mul_(10.0)
    return x * 2


def optimizer() -> None:
    w = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([w], eps=0.0)
    (w * torch.tensor([0.0, 1.0])).sum().backward()
    adam.step()


def foreach() -> None:
    w = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([w], eps=0.0, foreach=True)
    (w * torch.tensor([0.0, 1.0])).sum().backward()
    adam.step()


def accumulation() -> None:
    w = nn.Parameter(torch.tensor([1.0]))
    (w * 3e38).backward()
    (w * 3e38).backward()
    torch.optim.SGD([w], lr=0.1).step()


def masked() -> torch.Tensor:
    scores = torch.zeros(2, 3).masked_fill_(torch.tensor([[True, True, True], [False, False, True]]), float("-inf"))
    return scores.softmax(-1)


PROGRAMS = [forward, backward, in_place, optimizer, foreach, accumulation, masked]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_an_event_that_waited_is_explained_alike(program: object, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = whynan.explain(program)
    monkeypatch.setattr(Tracer, "defers", True)
    later = whynan.explain(program)
    assert _read(later) == _read(at_once)
    assert _read(at_once)
    assert later.coverage.events == at_once.coverage.events


def _step() -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    # foreach: one that steps a parameter at a time reads each step count, a number, from its tensor
    adam = torch.optim.AdamW(model.parameters(), foreach=True)
    loss = model(torch.randn(5, 4)).square().mean()
    loss.backward()
    adam.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.usefixtures("waiting")
def test_a_healthy_step_waits_only_at_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0
    original = deferred._not_finite

    def counted(*args: object) -> object:
        nonlocal waits
        waits += 1
        return original(*args)

    monkeypatch.setattr(deferred, "_not_finite", counted)
    with whynan.trace() as trace:
        _step()
    assert trace.report.verdict == "clean"
    # the model returns, the backward begins and ends, the step begins and ends, the trace ends
    assert 0 < waits <= 6 < trace.report.coverage.events


@pytest.mark.usefixtures("waiting")
def test_waiting_changes_no_bit() -> None:
    bare = _step()
    with whynan.trace():
        traced = _step()
    assert torch.equal(bare, traced)


@pytest.mark.usefixtures("waiting")
def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "BUDGET", 4096)
    largest = 0
    original = deferred.DeferredChecks.add

    def add(self: deferred.DeferredChecks, *args: object, **kwargs: object) -> None:
        nonlocal largest
        original(self, *args, **kwargs)
        largest = max(largest, len(self.events))

    monkeypatch.setattr(deferred.DeferredChecks, "add", add)
    with whynan.trace() as trace:
        x = torch.ones(64)
        for _ in range(200):
            x = x * 1.0
        (x * 3e38 * 10).sum().item()
    assert largest <= 4096 // (64 * 4) + 1
    assert trace.report.findings[0].op == "aten.mul.Tensor"


@pytest.mark.usefixtures("waiting")
def test_an_operand_that_was_overwritten_meanwhile_is_not_shown() -> None:
    with whynan.trace() as trace:
        x = torch.tensor([1e38])
        big = x * 10
        x.fill_(5.0)
        big.sum().item()
    (finding,) = trace.report.findings
    assert finding.op == "aten.mul.Tensor"
    assert [o.value for o in finding.element.operands if o.name == "self"] == [None]


@pytest.mark.usefixtures("waiting")
def test_ranges_are_counted_when_the_wait_is_over() -> None:
    with whynan.trace(ranges=True) as trace:
        (torch.ones(3) * 2).sum()
    assert [(r.op, r.finite_max) for r in trace.report.ranges] == [
        ("aten.ones.default", 1.0),
        ("aten.mul.Tensor", 2.0),
        ("aten.sum.default", 6.0),
    ]
