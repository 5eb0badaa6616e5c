"""Optimizers of every make: a birth in a step is named with its parameter, a healthy step is silent and unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.capture.seen import code, sinks, traced

KINDS: dict[str, dict[str, Any]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
MAKES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "Adam foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "Adam fused": lambda p: torch.optim.Adam(p, fused=True),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, centered=True),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
}


class Two(nn.Module):
    """Two layers, of which one sees every feature and the other what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Linear(2, 1, bias=False)
        self.partly = nn.Linear(2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(torch.ones(1, 2)) + self.partly(x)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_a_scaler_skips_is_no_use_of_clipped_gradients(kind: str) -> None:
    model = Two()
    optimizer = torch.optim.Adam(model.parameters(), **KINDS[kind])
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)

    def work() -> None:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.ones(64, 2)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    report = traced(work)
    assert (report.verdict, report.damaging) == ("clean", ())


@pytest.mark.parametrize("kind", KINDS)
def test_a_division_by_zero_in_adam_is_named_with_its_parameter(kind: str) -> None:
    model = Two()
    optimizer = torch.optim.Adam(model.parameters(), eps=0.0, **KINDS[kind])

    def work() -> None:
        model(torch.tensor([[1.0, 0.0]])).sum().backward()
        optimizer.step()

    (finding,) = traced(work).findings
    assert (finding.phase, finding.birth, code(finding)) == ("optimizer", "invalid", "optimizer.step()")
    assert finding.op is not None
    assert ("_foreach_" in finding.op, "_fused_" in finding.op) == (kind == "foreach", kind == "fused")
    assert (finding.element.index, finding.element.tensor) == ((0, 1), "partly.weight")
    assert sinks(finding) == {("parameter", "partly.weight")}
    assert finding.step == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_list_index_is_that_of_the_parameter(kind: str) -> None:
    weights = [torch.ones(2, requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.Adam(weights, eps=0.0, **KINDS[kind])

    def work() -> None:
        sum((w[: 2 - (i == 1)] * 2).sum() for i, w in enumerate(weights)).backward()  # type: ignore[union-attr]
        optimizer.step()

    (finding,) = traced(work).findings
    assert finding.element.list_index == (None if kind == "single" else 1)


@pytest.mark.parametrize("make", MAKES)
def test_a_healthy_optimizer_is_silent_and_steps_as_without_a_trace(make: str) -> None:
    def steps() -> list[float]:
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        optimizer = MAKES[make](model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
        return [v for p in model.parameters() for v in p.flatten().tolist()]

    bare = steps()
    results: list[list[float]] = []
    report = traced(lambda: results.append(steps()))
    assert results == [bare]
    assert report.verdict == "clean"


def test_an_update_by_hand_is_no_optimizer_phase_but_a_parameter_sink() -> None:
    weight = torch.ones(1, requires_grad=True)

    def work() -> None:
        (weight * 3e38).sum().backward()
        with torch.no_grad():
            assert weight.grad is not None
            weight.sub_(weight.grad * 10.0)

    report = traced(work)
    assert report.verdict == "nonfinite"
    (finding,) = report.findings
    assert (finding.phase, finding.op, code(finding)) == ("forward", "aten.mul.Tensor", "weight.grad * 10.0")
    assert sinks(finding) == {("parameter", "weight")}


def test_a_bad_gradient_that_a_step_consumes_stays_the_root_of_what_it_spoils() -> None:
    weight = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([weight])

    def work() -> None:
        weight.sqrt().sum().backward()
        optimizer.step()

    (finding,) = traced(work).findings
    assert (finding.phase, code(finding)) == ("backward", "weight.sqrt()")
    assert sinks(finding) == {("gradient", "weight"), ("parameter", "weight")}


class ByHand(torch.optim.Optimizer):
    """A user's own, whose decay is 1 in a half format: what it divides by is 0."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        del closure
        for parameter in self.param_groups[0]["params"]:
            decay = torch.tensor(0.999, dtype=parameter.dtype)
            mean = torch.zeros_like(parameter).add_(parameter.grad * (1 - decay))
            left = 1 - decay**2
            parameter.sub_(mean / left)


def test_what_made_the_operand_of_a_birth_in_an_optimizer_by_hand_is_told() -> None:
    weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = ByHand([weight])

    def work() -> None:
        (weight * 2).sum().backward()
        optimizer.step()

    (finding,) = traced(work).findings
    assert (finding.phase, finding.op) == ("optimizer", "aten.div.Tensor")
    causes = [(link.op, link.phase) for link in finding.chain if link.role == "cause"]
    made = ("aten.lift_fresh.default", "aten.pow.Tensor_Scalar", "aten.rsub.Scalar")
    assert causes == [(op, "optimizer") for op in made]


def test_a_scheduler_and_an_average_of_weights_are_silent() -> None:
    model = nn.Linear(2, 1)
    average = torch.optim.swa_utils.AveragedModel(model)

    def work() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            scheduler.step()
            average.update_parameters(model)

    assert traced(work).verdict == "clean"


def test_clipping_a_bad_norm_keeps_the_gradient_as_root() -> None:
    weights = [torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)]
    optimizer = torch.optim.SGD(weights, lr=0.1)

    def work() -> None:
        (weights[0].sqrt() * weights[1]).sum().backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()

    report = traced(work)
    finding = report.findings[0]
    assert (finding.phase, code(finding)) == ("backward", "weights[0].sqrt()")
    assert len(report.findings) == 1


def test_weights_that_were_bad_before_are_not_the_optimizers_doing() -> None:
    weight = torch.tensor([1.0, float("nan")], requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> Tensor:
        weight.grad = torch.ones(2)
        optimizer.step()
        return weight

    assert [f.birth for f in traced(step).findings if f.phase == "optimizer"] in ([], ["entered"])


def test_a_loss_whose_gradients_are_finite_belongs_to_the_optimizer_that_steps_on_it() -> None:
    """Of two that take turns, the other of which has made one step more by then."""
    judge, maker = nn.Linear(2, 1), nn.Linear(2, 2)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.01) for module in (judge, maker)]

    def work() -> None:
        for step in range(4):
            for number, optimizer in enumerate(optimizers):
                optimizer.zero_grad()
                scale = torch.full((), float(step == 2 and number == 1))
                loss = judge(maker(torch.ones(1, 2))).sum() + scale / (1 - scale)
                loss.backward()
                if not loss.isfinite():
                    return
                optimizer.step()

    (finding,) = traced(work).findings
    assert (finding.op, finding.step) == ("aten.div.Tensor", 3)
