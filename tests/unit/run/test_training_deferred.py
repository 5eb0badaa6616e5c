"""A watch that reads a step's numbers at the next one: a bad step has moved the weights by then, and that is said."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

import whynan
from tests.unit.run.test_training import BAD, Log, batches, bits, fit, fit_outgrown, network, only
from whynan.capture.torch.sinks.gradients import device_of
from whynan.errors import UsageError
from whynan.training import read_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whynan.records import Report

pytestmark = [pytest.mark.breadth, pytest.mark.usefixtures("without_proofs")]
watch = functools.partial(whynan.watch, quiet=True, sync="deferred")

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(name: str, *, rows: list[Tensor] | None = None, **more: Any) -> tuple[Report, Log, nn.Module]:
    """A watched training of the small network."""
    model, log = network(), Log()
    optimizer = OPTIMIZERS[name](model.parameters())
    with watch(optimizer, **more) as w:
        fit(model, optimizer, batches() if rows is None else rows, log)
    return w.report, log, model


def spoilt(model: nn.Module) -> bool:
    """Whether a weight is NaN."""
    return any(bool(p.isnan().any()) for p in model.parameters())


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_bad_step_is_found_at_the_next_one_which_is_not_made(name: str, snapshot: SnapshotAssertion) -> None:
    report, log, model = trained(name)
    assert (report.verdict, report.findings) == ("inconclusive", ())
    assert report.run.exit_status.whynan == 1
    assert (log.calls, len(log.losses)) == (BAD + 1, BAD)
    assert spoilt(model)
    assert list(report.coverage.notes) == snapshot(name="notes")


def test_the_numbers_of_each_step_are_in_the_history() -> None:
    report, log, _ = trained("adam")
    assert [step.step for step in report.run.history] == list(range(1, BAD + 1))
    assert [step.loss for step in report.run.history][:-1] == log.losses[:-1]


def test_a_training_that_continues_goes_on_with_its_bad_step(snapshot: SnapshotAssertion) -> None:
    report, log, model = trained("adam", on_nonfinite="continue")
    assert (report.verdict, len(log.losses)) == ("inconclusive", 6)
    assert spoilt(model)
    assert list(report.coverage.notes) == snapshot


@pytest.mark.parametrize("on_nonfinite", ["skip", "raise"])
def test_what_would_have_to_know_of_a_step_before_it_is_made_is_refused(
    on_nonfinite: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UsageError) as caught:
        watch(on_nonfinite=on_nonfinite)
    assert str(caught.value) == snapshot


def test_a_bad_last_step_is_found_as_the_block_ends() -> None:
    report, log, model = trained("adam", rows=batches(6))
    assert (report.verdict, len(log.losses)) == ("inconclusive", 6)
    assert spoilt(model)
    assert report.coverage.notes[0] == "NaN or Inf in the loss and 4 gradients at step 6"


def test_the_programs_own_error_comes_first() -> None:
    model = network()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    with pytest.raises(ZeroDivisionError), watch(optimizer) as w:
        fit(model, optimizer, batches(6), Log())
        _ = 1 / 0
    assert w.report.run.exit_status.whynan == 1


def test_finite_gradients_whose_norm_is_none_give_no_alarm() -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-30, fused=True)
    with watch(optimizer) as w:
        for _ in range(2):
            optimizer.zero_grad()
            (weight * torch.ones(3)).sum().mul(1e25).backward()
            optimizer.step()
    assert w.report.verdict == "clean"
    assert bool((weight < 1).all())


# -- with a loss scaler -----------------------------------------------------------------------------------------------


def fit_scaled(model: nn.Module, optimizer: Any, scaler: Any, rows: list[Tensor], seen: list[Any]) -> None:
    """A training with a loss scaler, whose loss is NaN for a row of zeros."""
    for x in rows:
        optimizer.zero_grad()
        seen.append(bits(model.state_dict()))
        loss = model(x / x.norm(dim=1, keepdim=True)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_a_loss_that_is_nan_in_a_step_that_a_scaler_skips_itself_is_explained() -> None:
    model, seen = network(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=False)
    with watch(optimizer) as w:
        fit_scaled(model, optimizer, torch.amp.GradScaler("cpu", init_scale=16.0), batches(), seen)
    assert only(w.report).step == BAD
    assert bits(model.state_dict()) == seen[BAD - 1]


def test_a_loss_that_is_nan_in_a_step_that_a_fused_optimizer_skips_is_told_of(snapshot: SnapshotAssertion) -> None:
    model, seen = network(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    with watch(optimizer) as w:
        fit_scaled(model, optimizer, torch.amp.GradScaler("cpu", init_scale=16.0), batches(), seen)
    assert bits(model.state_dict()) == seen[BAD - 1]
    assert list(w.report.coverage.notes) == snapshot


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_a_scaler_skips_give_no_alarm(fused: bool) -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1e-3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9, fused=fused)
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    with watch(optimizer) as w:
        for _ in range(12):
            optimizer.zero_grad()
            scaler.scale(model(torch.full((1, 2), 2.0**7)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert (w.report.verdict, w.report.coverage.skipped_steps) == ("clean", 6)
    assert scaler.get_scale() == 2.0**120


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_that_skips_on_end_down_to_its_least_is_told_of(fused: bool) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3, fused=fused)
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=16.0)
    with watch(optimizer) as w:
        for _ in range(12):
            optimizer.zero_grad()
            scaler.scale((weight * 0).sqrt().sum() + weight.sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert w.report.run.exit_status.whynan == 1
    assert [step.skipped for step in w.report.run.history] == [True] * 8


@pytest.mark.parametrize("many", [False, True])
def test_a_loss_that_is_infinite_before_its_scale_is_told_of(many: bool) -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    with watch(optimizer) as w:
        fit_outgrown(model, optimizer, torch.amp.GradScaler("cpu", init_scale=2.0), many=many)
    assert w.report.verdict == "inconclusive"
    assert w.report.coverage.notes[0] == "NaN or Inf in the loss at step 3"


# -- as a decorator, and what is held ---------------------------------------------------------------------------------


def test_a_step_function_is_read_as_it_ends() -> None:
    model = network()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    w = watch(optimizer)

    @w
    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        model(x / x.norm(dim=1, keepdim=True)).square().mean().backward()
        optimizer.step()

    verdicts = []
    for x in batches()[:BAD]:
        step(x)
        verdicts.append(w.report.verdict)
    assert verdicts == ["clean"] * (BAD - 1) + ["inconclusive"]


def test_a_step_that_was_not_read_holds_no_gradient() -> None:
    model = network()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    alive: list[int] = []
    with watch(optimizer):
        for x in batches(None):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            known = [weakref.ref(p.grad) for p in model.parameters()]
            optimizer.zero_grad()
            alive.append(sum(r() is not None for r in known))
    assert alive == [0] * 6


def test_many_optimizers_that_step_once_are_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    made = read_back.ReadBack.__init__
    monkeypatch.setattr(
        read_back.ReadBack, "__init__", lambda r, *a, **k: (begun.append(weakref.ref(r)), made(r, *a, **k))[1]
    )
    with watch() as w:
        for _ in range(60):
            weight = torch.ones(2, requires_grad=True)
            optimizer = torch.optim.Adam([weight], fused=True)
            weight.sum().backward()
            optimizer.step()
        assert len(begun) == 60
        assert sum(r() is not None for r in begun) <= 17
    assert w.report.verdict == "clean"


def test_a_report_names_the_device_of_what_was_watched() -> None:
    here, there = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True, device="meta")
    with whynan.watch(quiet=True) as w:
        here.sum().backward()
        torch.optim.SGD([here]).step()
    assert w.report.run.device == "cpu"
    assert device_of([torch.optim.SGD([here]), torch.optim.SGD([there])]) == "meta"
    assert device_of([]) == "cpu"


def test_only_the_two_are_legal(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UsageError) as caught:
        whynan.watch(sync="later")
    assert str(caught.value) == snapshot
