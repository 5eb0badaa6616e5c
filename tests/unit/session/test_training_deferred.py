"""A watch that reads a step's numbers at the next one: what a bad step has moved by then, and what is said of it."""

from __future__ import annotations

import functools
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

import whynan
from tests.unit.session.test_training import BAD, Log, batches, bits, fit, network, only
from whynan.capture.torch import gates, unread
from whynan.capture.torch.judging import device_of
from whynan.errors import NonFiniteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whynan.records import Report

pytestmark = [pytest.mark.breadth, pytest.mark.usefixtures("without_proofs")]
watch = functools.partial(whynan.watch, quiet=True, sync="deferred")

FUSED: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True),
}
OTHERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(
    make: Callable[[Any], torch.optim.Optimizer], *, rows: list[Tensor] | None = None, **more: Any
) -> tuple[Report, Log, nn.Module, torch.optim.Optimizer]:
    """A watched training of the small network."""
    model, log = network(), Log()
    optimizer = make(model.parameters())
    with watch(optimizer, **more) as w:
        fit(model, optimizer, batches() if rows is None else rows, log)
    return w.report, log, model, optimizer


def said(report: Report) -> list[str]:
    """What is said beside the findings."""
    return [*report.coverage.notes, report.run.replay.why if report.run.replay else ""]


# -- a fused optimizer passes over a bad step by itself ---------------------------------------------------------------


@pytest.mark.parametrize("name", list(FUSED))
def test_a_bad_step_of_a_fused_optimizer_moves_nothing_and_is_explained(name: str) -> None:
    report, log, model, optimizer = trained(FUSED[name])
    finding = only(report)
    assert (finding.step, finding.birth, finding.op) == (BAD, "invalid", "aten.div.Tensor")
    assert finding.site is not None
    assert finding.site.code == "x / x.norm(dim=1, keepdim=True)"
    # it is found at the next step, which is not made
    assert (log.calls, len(log.losses)) == (BAD + 1, BAD)
    assert bits([model.state_dict(), optimizer.state_dict()["state"]]) == log.before[BAD - 1]
    assert log.before[BAD - 1] != log.before[BAD - 2]


def test_what_was_compared_is_said(snapshot: SnapshotAssertion) -> None:
    report, _, _, _ = trained(FUSED["adam"])
    assert said(report) == snapshot


@pytest.mark.parametrize("name", list(FUSED))
def test_a_training_that_skips_its_bad_step_is_the_one_without_that_batch(name: str) -> None:
    report, log, model, _ = trained(FUSED[name], on_nonfinite="skip")
    assert (only(report).step, len(log.losses)) == (BAD, 6)
    other = network()
    rows = batches(None)
    fit(other, FUSED[name](other.parameters()), rows[: BAD - 1] + rows[BAD:], Log())
    assert bits(model.state_dict()) == bits(other.state_dict())


@pytest.mark.parametrize("name", list(FUSED))
@pytest.mark.parametrize("on_nonfinite", ["stop", "skip"])
def test_a_bad_first_step_leaves_no_state_that_nobody_has_written(name: str, on_nonfinite: str) -> None:
    _, log, model, _ = trained(FUSED[name], rows=batches(1), on_nonfinite=on_nonfinite)
    if on_nonfinite == "stop":
        assert bits(model.state_dict()) == log.before[0][0]
        return
    other = network()
    fit(other, FUSED[name](other.parameters()), batches(None)[1:], Log())
    assert bits(model.state_dict()) == bits(other.state_dict())


@contextmanager
def _filled() -> Iterator[None]:
    """Memory that nobody has written holds NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_without_that_care_the_momentum_of_a_first_step_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whynan.capture.torch.behind.begins", lambda _: False)
    with _filled():
        _, _, model, _ = trained(FUSED["sgd with momentum"], rows=batches(1), on_nonfinite="skip")
    assert all(bool(p.isnan().any()) for p in model.parameters())


def in_its_own_block(**more: Any) -> tuple[Any, bool, Any]:
    """A training whose loop stands in the block itself and whose last step is bad."""
    model = network()
    optimizer = FUSED["adam"](model.parameters())
    before, caught = None, None
    w = watch(optimizer, **more)
    try:
        with w:
            for x in batches(6):
                before = bits(model.state_dict())
                optimizer.zero_grad()
                model(x / x.norm(dim=1, keepdim=True)).square().mean().backward()
                optimizer.step()
    except NonFiniteError as error:
        caught = error
    return w, before == bits(model.state_dict()), caught


def test_a_bad_last_step_is_found_and_explained_as_the_block_ends() -> None:
    w, unmoved, caught = in_its_own_block()
    assert (only(w.report).step, unmoved, caught) == (6, True, None)
    w, unmoved, caught = in_its_own_block(on_nonfinite="raise")
    assert (unmoved, caught.finding) == (True, only(w.report))


def test_a_bad_last_step_of_a_loop_that_has_returned_is_found(snapshot: SnapshotAssertion) -> None:
    report, log, model, _ = trained(FUSED["adam"], rows=batches(6))
    assert (report.verdict, len(log.losses)) == ("inconclusive", 6)
    assert bits(model.state_dict()) == log.before[5][0]
    assert said(report) == snapshot


def test_the_programs_own_error_comes_first() -> None:
    model = network()
    optimizer = FUSED["adam"](model.parameters())
    with pytest.raises(ZeroDivisionError), watch(optimizer, on_nonfinite="raise") as w:
        fit(model, optimizer, batches(6), Log())
        _ = 1 / 0
    assert w.report.run.exit_status.whynan == 1


def test_an_error_is_raised_at_the_next_step_where_that_is_asked_for() -> None:
    model, log = network(), Log()
    optimizer = FUSED["adam"](model.parameters())
    with pytest.raises(NonFiniteError) as caught, watch(optimizer, on_nonfinite="raise") as w:
        fit(model, optimizer, batches(), log)
    assert (caught.value.finding, log.calls) == (only(w.report), BAD + 1)


def test_what_a_gate_has_put_on_an_optimizer_is_taken_off_after_the_step() -> None:
    model = network()
    optimizer = FUSED["adam"](model.parameters())
    seen: list[Any] = []
    optimizer.register_step_pre_hook(lambda o, *_: seen.append(getattr(o, "found_inf", None)))
    with watch(optimizer, on_nonfinite="skip"):
        fit(model, optimizer, batches(), Log())
    assert [float(s) for s in seen] == [0, 0, 0, 1, 0, 0]
    assert not hasattr(optimizer, "found_inf")


def test_a_step_that_raises_leaves_nothing_at_its_optimizer() -> None:
    model = network()
    optimizer = FUSED["adam"](model.parameters())

    def refuse(*_: Any) -> None:
        raise ZeroDivisionError

    with watch(optimizer) as w:
        fit(model, optimizer, batches(None, 2), Log())
        handle = optimizer.register_step_pre_hook(refuse)
        with pytest.raises(ZeroDivisionError):
            fit(model, optimizer, batches(None, 1), Log())
        handle.remove()
        assert hasattr(optimizer, "found_inf")
        fit(model, optimizer, batches(None, 2), Log())
        assert not hasattr(optimizer, "found_inf")
    assert w.report.verdict == "clean"


def test_finite_gradients_whose_norm_is_none_are_not_held_back() -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-30, fused=True)
    with watch(optimizer) as w:
        for _ in range(2):
            optimizer.zero_grad()
            (weight * torch.ones(3)).sum().mul(1e25).backward()
            optimizer.step()
    assert w.report.verdict == "clean"
    assert bool((weight < 1).all())


# -- another has moved its weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(OTHERS))
def test_a_step_of_another_optimizer_is_found_after_it_has_moved_the_weights(
    name: str, snapshot: SnapshotAssertion
) -> None:
    report, log, model, _ = trained(OTHERS[name])
    assert (report.verdict, report.findings, log.calls) == ("inconclusive", (), BAD + 1)
    assert report.run.exit_status.whynan == 1
    assert any(bool(p.isnan().any()) for p in model.parameters())
    assert said(report) == snapshot


def test_a_training_that_continues_takes_its_bad_step(snapshot: SnapshotAssertion) -> None:
    report, log, model, _ = trained(FUSED["adam"], on_nonfinite="continue")
    assert (report.verdict, len(log.losses)) == ("inconclusive", 6)
    assert any(bool(p.isnan().any()) for p in model.parameters())
    assert said(report) == snapshot


class Own(torch.optim.Adam):
    """An optimizer of the program's, whose step may do anything."""

    def step(self, closure: Any = None) -> Any:
        """Adam's."""
        return super().step(closure)


def test_why_a_step_cannot_be_held_back(snapshot: SnapshotAssertion) -> None:
    weight = torch.ones(2, requires_grad=True)
    cases = {
        "held": torch.optim.Adam([weight], fused=True),
        "not fused": torch.optim.Adam([weight]),
        "partly fused": torch.optim.SGD(
            [{"params": [weight]}, {"params": [torch.ones(1)], "fused": False}], fused=True
        ),
        "its own": Own([weight], fused=True),
        "another": torch.optim.RMSprop([weight]),
    }
    found = {name: gates.open_because(optimizer, [weight]) for name, optimizer in cases.items()}
    found["two devices"] = gates.open_because(cases["held"], [weight, torch.ones(1, device="meta")])
    assert found == snapshot


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


@pytest.mark.parametrize("fused", [False, True])
def test_a_loss_that_is_nan_under_a_scaler_is_told_of(fused: bool) -> None:
    model, seen = network(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=16.0)
    with watch(optimizer) as w:
        fit_scaled(model, optimizer, scaler, batches(), seen)
    assert only(w.report).step == BAD
    assert bits(model.state_dict()) == seen[BAD - 1]


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
    assert w.report.verdict == "clean"
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


# -- as a decorator, and what is held ---------------------------------------------------------------------------------


def test_a_step_function_is_read_as_it_ends() -> None:
    model = network()
    optimizer = FUSED["adam"](model.parameters())
    w = watch(optimizer)
    done: list[int] = []

    @w
    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        model(x / x.norm(dim=1, keepdim=True)).square().mean().backward()
        optimizer.step()
        done.append(1)

    rows = batches()
    for x in rows[: BAD - 1]:
        step(x)
    before = bits(model.state_dict())
    with pytest.raises(NonFiniteError) as caught:
        step(rows[BAD - 1])
    assert (caught.value.finding, len(done)) == (only(w.report), BAD)
    assert bits(model.state_dict()) == before


def test_a_step_that_was_not_read_holds_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    optimizer = FUSED["adam"](model.parameters())
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
    made = unread.Unread.__init__
    monkeypatch.setattr(
        unread.Unread, "__init__", lambda u, *a, **k: (begun.append(weakref.ref(u)), made(u, *a, **k))[1]
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
