"""Silent damage in watched steps: weights that stand still, gradients out of proportion, gradients all clipped to 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

import whynan
from whynan import Report
from whynan.capture.torch.sinks.gradients import Fault, Losses
from whynan.training.read_back import StepStatistics
from whynan.training.updates import WatchDetectors

BF16 = torch.bfloat16


def watched(program: Callable[[], object], **how: Any) -> Report:
    """The report of a program run inside a watch."""
    with whynan.watch(quiet=True, **how) as w:
        program()
    return w.report


def linear(dtype: torch.dtype = BF16) -> nn.Linear:
    """A layer whose weights are 0.05 or more."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 4)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(p.sign() * p.abs().clamp_min(0.05))
    return layer.to(dtype)


def fit(model: nn.Module, optimizer: Any, steps: int = 40, scheduler: Any = None, factor: float = 1.0) -> None:
    """A training on noise."""
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(torch.randn(16, 8, dtype=dtype)) - torch.randn(16, 4, dtype=dtype)
        (out.square().mean() * factor).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


# -- weights that stand still ----------------------------------------------------------------------------------------


def adam(lr: float, dtype: torch.dtype = BF16, **how: Any) -> None:
    model = linear(dtype)
    fit(model, torch.optim.AdamW(model.parameters(), lr=lr, **how))


def momentum(lr: float, factor: float = 1.0) -> None:
    model = linear()
    fit(model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True), factor=factor)


def scheduled(lr: float, rate: Callable[[int], float], steps: int = 80) -> None:
    model = linear()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    fit(model, optimizer, steps, torch.optim.lr_scheduler.LambdaLR(optimizer, rate))


def one_cycle(highest: float) -> None:
    """A rate that rises above the one it begins with."""
    model = linear()
    optimizer = torch.optim.AdamW(model.parameters(), lr=highest)
    fit(model, optimizer, 80, torch.optim.lr_scheduler.OneCycleLR(optimizer, highest, total_steps=10_000))


def late(lr: float) -> None:
    """What is watched is the end of a schedule."""
    model = linear()
    optimizer = torch.optim.AdamW([{"params": list(model.parameters()), "initial_lr": 1e-2}], lr=lr)
    fit(model, optimizer)


class Compensated(torch.optim.SGD):
    """It keeps what was rounded away."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for p in self.param_groups[0]["params"]:
            kept = self.state[p].setdefault("kept", torch.zeros_like(p, dtype=torch.float32))
            kept.sub_(p.grad.float(), alpha=self.param_groups[0]["lr"])
            moved = (p.float() + kept).to(p.dtype)
            kept.sub_(moved.float() - p.float())
            p.copy_(moved)


def compensated() -> None:
    model = linear()
    fit(model, Compensated(model.parameters(), lr=1e-4))


def copied_in_float32() -> None:
    model = linear()
    copies = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(copies, lr=2e-5)
    for _ in range(40):
        (model(torch.randn(16, 8, dtype=BF16)).square().mean()).backward()
        for copy, p in zip(copies, model.parameters(), strict=True):
            assert p.grad is not None
            copy.grad = p.grad.float()
            p.grad = None
        optimizer.step()
        for copy, p in zip(copies, model.parameters(), strict=True):
            p.data.copy_(copy.data)


def without_gradients() -> None:
    model = linear()
    fit(model, torch.optim.SGD(model.parameters(), lr=1e-2), factor=0.0)


STALLED = {
    "AdamW in bfloat16": lambda: adam(2e-5),
    "AdamW in one kernel": lambda: adam(2e-5, fused=True),
    "AdamW in float16": lambda: adam(2e-6, torch.float16),
    "SGD with momentum": lambda: momentum(3e-5),
    "a learning rate that falls from its first step on": lambda: scheduled(2e-5, lambda step: 1 - step / 200),
}


@pytest.mark.parametrize("name", STALLED)
def test_weights_that_no_step_moves_are_told_of(name: str, snapshot: SnapshotAssertion) -> None:
    report = watched(STALLED[name])
    assert (report.verdict, len(report.damaging), report.run.exit_status.whynan) == ("damaged", 1, 0)
    finding = report.damaging[0]
    assert (finding.rule, finding.severity, finding.step) == ("WN708", "warning", 32)
    assert finding.damage is not None
    assert (finding.damage.concerned, finding.damage.total) == (36, 36)
    assert finding.message == snapshot


MOVING = {
    "updates that are large enough": lambda: adam(1e-2),
    "float32": lambda: adam(2e-5, torch.float32),
    "copies in float32": copied_in_float32,
    "no learning rate": lambda: adam(0.0),
    "a warm-up": lambda: scheduled(1e-3, lambda step: step / 5000),
    "the warm-up of a cycle": lambda: one_cycle(4e-4),
    "a rate that has been low and rises": lambda: scheduled(1e-3, lambda step: 1e-3 if step < 50 else 1.0),
    "the end of a schedule": lambda: late(1e-6),
    "no gradients": without_gradients,
    "gradients of a training that is over": lambda: momentum(3e-5, factor=1e-6),
    "an optimizer that keeps what was rounded away": compensated,
    "too few steps": lambda: fit(m := linear(), torch.optim.AdamW(m.parameters(), lr=2e-5), 31),
}


@pytest.mark.parametrize("name", MOVING)
def test_weights_that_move_or_need_not_give_no_alarm(name: str) -> None:
    report = watched(MOVING[name])
    assert report.verdict == "clean", report.damaging


def test_it_is_told_in_a_deferred_watch_too() -> None:
    report = watched(STALLED["AdamW in bfloat16"], sync="deferred")
    assert [f.rule for f in report.damaging] == ["WN708"]


# -- gradients -------------------------------------------------------------------------------------------------------


def steep(*, clips: bool = False, factor: float = 1e12, optimizer: Any = None) -> None:
    model = linear(torch.float32)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(6):
        optimizer.zero_grad()
        out = model(torch.ones(16, 8)) * (factor if step == 3 else 1.0)
        out.sum().backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def scaled(*, fused: bool) -> None:
    """The scale is what makes them so great, and it is divided out again."""
    model = linear(torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(16, 8)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()


def test_a_gradient_out_of_all_proportion_is_told_of(snapshot: SnapshotAssertion) -> None:
    report = watched(steep)
    assert report.verdict == "damaged"
    finding = report.damaging[0]
    assert (finding.rule, finding.step, finding.element.tensor) == ("WN712", 4, "weight")
    assert finding.site is not None
    assert finding.site.code == "optimizer.step()"
    assert f"{finding.message}\n{finding.explanation}" == snapshot


def test_one_whose_norm_overflows_is_told_of_too() -> None:
    assert [f.rule for f in watched(lambda: steep(factor=1e25)).damaging] == ["WN712"]


@pytest.mark.parametrize(
    "program",
    [lambda: steep(clips=True), lambda: steep(factor=1e6), lambda: scaled(fused=False), lambda: scaled(fused=True)],
)
def test_gradients_that_a_step_does_not_consume_so_give_no_alarm(program: Any) -> None:
    report = watched(program)
    assert report.verdict == "clean", report.damaging


def clipped(dtype: torch.dtype, factor: float, *, norm: float = 1.0) -> list[Tensor]:
    model = linear(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(5):
        optimizer.zero_grad()
        (model(torch.ones(1, 8, dtype=dtype)) * (factor if step == 2 else 1.0)).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def test_gradients_that_an_infinite_norm_makes_0_are_told_of(snapshot: SnapshotAssertion) -> None:
    report = watched(lambda: clipped(torch.float16, 60000.0))
    assert report.verdict == "damaged"
    finding = report.damaging[0]
    assert (finding.rule, finding.step) == ("WN714", 3)
    assert finding.site is not None
    assert finding.site.code == "torch.nn.utils.clip_grad_norm_(model.parameters(), norm)"
    assert f"{finding.message}\n{finding.explanation}" == snapshot


@pytest.mark.parametrize(
    "program",
    [
        lambda: clipped(torch.float32, 60000.0),
        lambda: clipped(torch.float16, 0.0),
        lambda: clipped(torch.float16, 60.0),
    ],
)
def test_gradients_that_are_clipped_as_they_should_give_no_alarm(program: Any) -> None:
    report = watched(program)
    assert report.verdict == "clean", report.damaging


def by_hand(
    dtype: torch.dtype = torch.float16, factor: float = 60000.0, *, target: float = 0.0, steps: int = 5
) -> list[Tensor]:
    """A training that clips without torch's function."""
    model = linear(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        (model(torch.ones(1, 8, dtype=dtype)) * (factor if step >= 2 else 1.0) - target).mean().backward()
        norm = torch.stack([p.grad.square().sum() for p in model.parameters() if p.grad is not None]).sum().sqrt()
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_((1.0 / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@pytest.mark.usefixtures("without_proofs")
def test_a_clip_by_hand_that_zeroes_every_gradient_is_told_of() -> None:
    report = watched(by_hand)
    assert report.verdict == "damaged"
    told = {f.rule: f for f in report.damaging}["WN714"]
    assert (told.step, told.occurrences) == (3, 1)
    assert told.site is not None
    assert told.site.code == "p.grad.mul_((1.0 / (norm + 1e-6)).clamp(max=1.0))"
    assert report.coverage.notes[0] == "5 steps watched: the loss and the gradients of each were finite"


@pytest.mark.usefixtures("without_proofs")
@pytest.mark.breadth
def test_looking_into_such_a_step_leaves_the_training_as_it_is() -> None:
    alone = by_hand()
    found: list[Tensor] = []
    report = watched(lambda: found.extend(by_hand()))
    assert report.verdict == "damaged"
    assert all(torch.equal(a, b) for a, b in zip(alone, found, strict=True))


@pytest.mark.parametrize(
    "program",
    [
        lambda: by_hand(torch.float32),
        # no gradient comes from a factor of 0, and the loss is not 0
        lambda: by_hand(factor=0.0, target=1.0),
        lambda: by_hand(factor=0.0),
    ],
    ids=["float32", "no gradient", "no loss"],
)
def test_gradients_that_are_0_as_they_should_give_no_alarm(program: Any) -> None:
    report = watched(program)
    assert report.verdict == "clean", report.damaging
    assert len(report.coverage.notes) == 1


@pytest.mark.breadth
def test_a_clip_by_hand_that_is_allowed_is_no_warning() -> None:
    with whynan.allow("WN7", reason="meant"):
        assert watched(by_hand).verdict == "clean"


def looked_into(norms: list[float], loss: float = 1.0, *, finds: bool = False) -> list[int]:
    """The steps that are looked into, of an optimizer whose gradients have these norms."""
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    detectors, seen = WatchDetectors(frozenset({"gradients"}), tuple), list[int]()

    def look(fault: Fault) -> bool:
        seen.append(fault.step)
        return finds

    detectors.look_into = look
    for step, norm in enumerate(norms, 1):
        weight.grad = torch.full((1,), norm)
        detectors.consume(optimizer, step, StepStatistics(norm, (loss,)), None, Losses())
        detectors.look()
    return seen


def test_a_step_is_looked_into_where_gradients_become_0() -> None:
    assert looked_into([1.0, 0.0, 0.0, 1.0, 0.0]) == [2, 5]
    assert looked_into([0.0, 1.0]) == [1]


def test_of_a_loss_that_is_0_none_is_looked_into() -> None:
    assert looked_into([1.0, 0.0], loss=0.0) == []


def test_few_steps_are_looked_into() -> None:
    assert looked_into([1.0, 0.0] * 9) == [2, 4, 6]
    assert looked_into([1.0, 0.0] * 9, finds=True) == [2]


# -- an Inf that leaves nothing bad -----------------------------------------------------------------------------------


def normalised(size: float, dtype: torch.dtype = torch.float16, steps: int = 5) -> list[Tensor]:
    """A training whose third step has a row of this size, divided by the root of its mean square."""
    torch.manual_seed(0)
    model, head = linear(dtype), nn.Linear(4, 1).to(dtype)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=1e-3)
    for step in range(steps):
        x = torch.randn(8, 8)
        x[2] *= size if step == 2 else 1.0
        hidden = model(x.to(dtype))
        rooted = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
        optimizer.zero_grad()
        (head(rooted).float() - x[:, :1]).abs().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@pytest.mark.usefixtures("without_proofs")
def test_a_row_that_an_overflow_made_0_is_told_of() -> None:
    report = watched(lambda: normalised(3000.0))
    assert report.verdict == "damaged"
    (told,) = report.damaging
    assert (told.rule, told.step, told.site and told.site.code) == ("WN701", 3, "hidden.pow(2)")
    assert report.run.replay.faithful


@pytest.mark.usefixtures("without_proofs")
@pytest.mark.breadth
def test_looking_for_it_leaves_the_training_as_it_is() -> None:
    alone = normalised(3000.0)
    found: list[Tensor] = []
    watched(lambda: found.extend(normalised(3000.0)))
    assert all(torch.equal(a, b) for a, b in zip(alone, found, strict=True))


@pytest.mark.parametrize(("size", "dtype"), [(100.0, torch.float16), (3000.0, torch.float32)])
def test_squares_within_the_range_give_no_alarm(size: float, dtype: torch.dtype) -> None:
    assert watched(lambda: normalised(size, dtype)).verdict == "clean"


def halves_looked_into(
    losses: list[float], dtype: torch.dtype = torch.float16, scale: float | None = None
) -> list[int]:
    """The steps that are looked into, of an optimizer whose losses these are."""
    weight = torch.zeros(1, requires_grad=True, dtype=dtype)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    detectors, seen = WatchDetectors(frozenset(), tuple), list[int]()

    def look(fault: Fault) -> bool:
        seen.append(fault.step)
        return False

    detectors.look_into = look
    for step, loss in enumerate(losses, 1):
        detectors.consume(optimizer, step, StepStatistics(1.0, (loss,), scale=scale), None, Losses())
        detectors.look()
    return seen


def test_steps_in_float16_are_looked_into_now_and_then() -> None:
    falling = [1.0 / n for n in range(1, 20)]
    assert halves_looked_into(falling) == [1, 2, 4, 8, 16]
    assert halves_looked_into([3.0, 2.0, 4.0, 1.0, 5.0]) == [1, 2, 3, 4, 5]
    assert halves_looked_into([float(n) for n in range(1, 20)]) == [1, 2, 3, 4, 5, 6, 7, 8, 16]
    assert halves_looked_into(falling, torch.float32, scale=65536.0) == [1, 2, 4, 8, 16]
    assert halves_looked_into(falling, torch.float32) == halves_looked_into(falling, torch.bfloat16) == []


# -- what is meant ---------------------------------------------------------------------------------------------------


def test_what_is_allowed_is_no_warning() -> None:
    with whynan.allow("WN712", reason="the loss is in pascal"):
        report = watched(steep)
    assert report.verdict == "clean"
    assert any(n.startswith("WN712 steep-gradient at ") and "pascal" in n for n in report.coverage.notes)


@pytest.mark.full
@pytest.mark.breadth
def test_a_step_that_is_bad_is_all_that_is_told_of() -> None:
    def spoilt() -> None:
        steep()
        model = linear(torch.float32)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        model(torch.full((1, 8), float("nan"))).sum().backward()
        optimizer.step()

    report = watched(spoilt)
    assert (report.verdict, report.damaging) == ("nonfinite", ())


def test_the_same_place_is_one_finding_with_a_count() -> None:
    def often() -> None:
        steep()
        steep()

    assert [f.occurrences for f in watched(often).damaging] == [2]
