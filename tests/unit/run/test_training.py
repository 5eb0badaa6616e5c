"""``whynan.watch``: what it finds in a training, at which step, what it leaves of that step, and when it is silent."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import whynan
from whynan.errors import NestedTraceError, NonFiniteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whynan.records import Finding, Report

pytestmark = pytest.mark.usefixtures("without_proofs")
INF = float("inf")
BAD = 4
"""The step of the bad batch."""
watch = functools.partial(whynan.watch, quiet=True)


def network() -> nn.Sequential:
    """A small network, always the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def batches(bad: int | None = BAD, count: int = 6) -> list[Tensor]:
    """Rows to be normalised, one of which is all zeros."""
    made = list(torch.randn(count, 5, 3, generator=torch.Generator().manual_seed(1)).unbind())
    if bad is not None:
        made[bad - 1][2] = 0.0
    return made


def bits(value: Any) -> Any:
    """Something that is equal to another only bit for bit."""
    if isinstance(value, Tensor):
        return (
            str(value.dtype),
            tuple(value.shape),
            bytes(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()),
        )
    if isinstance(value, dict):
        return {key: bits(each) for key, each in value.items()}
    return [bits(each) for each in value] if isinstance(value, (list, tuple)) else value


@dataclass
class Log:
    """What a loop has come to: the weights and the optimizer before each step, and what it saw."""

    before: list[Any] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    calls: int = 0


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, rows: list[Tensor], log: Log) -> None:
    """A training whose loss is NaN for a row of zeros."""
    for x in rows:
        log.before.append(bits([model.state_dict(), optimizer.state_dict()["state"]]))
        log.calls += 1
        optimizer.zero_grad()
        unit = x / x.norm(dim=1, keepdim=True)
        loss = model(unit).square().mean()
        loss.backward()
        optimizer.step()
        log.losses.append(loss.item())


def only(report: Report) -> Finding:
    """The one finding of a faithful replay."""
    assert report.verdict == "nonfinite", report.coverage.notes
    assert report.run.replay is not None
    assert report.run.replay.faithful is True
    (finding,) = report.findings
    return finding


def trained(
    make: Callable[[Any], torch.optim.Optimizer],
    *,
    bad: int | None = BAD,
    on_nonfinite: str | None = None,
) -> tuple[Report, Log, nn.Module, torch.optim.Optimizer]:
    """A watched training of the small network."""
    model, log = network(), Log()
    optimizer = make(model.parameters())
    with watch(optimizer, on_nonfinite=on_nonfinite) as w:
        fit(model, optimizer, batches(bad), log)
    return w.report, log, model, optimizer


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
    "adam foreach": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
    "adam fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_bad_step_is_explained_and_leaves_everything_as_before_it(name: str) -> None:
    report, log, model, optimizer = trained(OPTIMIZERS[name])
    finding = only(report)
    assert (finding.step, finding.birth, finding.op) == (BAD, "invalid", "aten.div.Tensor")
    assert finding.element is not None
    assert list(finding.element.index) == [2, 0]
    assert finding.site is not None
    assert finding.site.code == "x / x.norm(dim=1, keepdim=True)"
    assert (log.calls, len(log.losses)) == (BAD, BAD - 1)
    assert bits([model.state_dict(), optimizer.state_dict()["state"]]) == log.before[BAD - 1]
    assert log.before[BAD - 1] != log.before[BAD - 2]


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_training_without_a_bad_step_is_clean(name: str) -> None:
    report, log, _, _ = trained(OPTIMIZERS[name], bad=None)
    assert (report.verdict, report.findings, report.run.exit_status.whynan) == ("clean", (), 0)
    assert len(log.losses) == 6


def test_a_bad_step_that_is_skipped_moves_nothing_and_the_next_one_does() -> None:
    report, log, model, _ = trained(OPTIMIZERS["adam"], on_nonfinite="skip")
    assert only(report).step == BAD
    assert len(log.losses) == 6
    assert log.before[BAD] == log.before[BAD - 1]
    assert log.before[BAD + 1] != log.before[BAD]
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_a_training_that_skips_its_bad_step_is_the_one_without_that_batch() -> None:
    _, _, model, _ = trained(OPTIMIZERS["adam"], on_nonfinite="skip")
    other = network()
    rows = batches(None)
    fit(other, OPTIMIZERS["adam"](other.parameters()), rows[: BAD - 1] + rows[BAD:], Log())
    assert bits(model.state_dict()) == bits(other.state_dict())


def test_every_bad_step_is_skipped_and_the_first_one_told_of() -> None:
    model, log = network(), Log()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = batches()
    rows[4][1] = 0.0
    with watch(optimizer, on_nonfinite="skip") as w:
        fit(model, optimizer, rows, log)
    assert only(w.report).step == BAD
    assert log.before[BAD - 1] == log.before[BAD] == log.before[BAD + 1]
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_a_training_that_continues_takes_its_bad_step() -> None:
    report, log, model, _ = trained(OPTIMIZERS["adam"], on_nonfinite="continue")
    assert only(report).step == BAD
    assert len(log.losses) == 6
    assert any(bool(p.isnan().any()) for p in model.parameters())


@pytest.mark.full
@pytest.mark.breadth
def test_an_error_with_the_finding_is_raised_where_that_is_asked_for() -> None:
    model, log = network(), Log()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(NonFiniteError) as caught, watch(optimizer, on_nonfinite="raise") as w:
        fit(model, optimizer, batches(), log)
    assert caught.value.finding == only(w.report)
    assert bits([model.state_dict(), {}]) == [*log.before[BAD - 1][:1], {}]


def test_the_programs_own_error_leaves_the_block() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ZeroDivisionError), watch(optimizer) as w:
        fit(model, optimizer, batches(None, 2), Log())
        _ = 1 / 0
    assert w.report.verdict == "clean"


def test_there_is_no_report_while_the_block_runs() -> None:
    with watch() as w, pytest.raises(UsageError):
        _ = w.report
    with pytest.raises(UsageError), w:
        pass


# -- as a decorator --------------------------------------------------------------------------------------------------


def _decorated(model: nn.Module, optimizer: torch.optim.Optimizer, w: Any) -> Callable[[Tensor], float]:
    def step(x: Tensor) -> float:
        optimizer.zero_grad()
        unit = x / x.norm(dim=1, keepdim=True)
        loss = model(unit).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return w(step)


def test_a_step_function_raises_at_its_bad_step() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    w = watch(optimizer)
    step = _decorated(model, optimizer, w)
    rows = batches()
    for x in rows[: BAD - 1]:
        assert step(x) > 0
    before = bits(model.state_dict())
    with pytest.raises(NonFiniteError) as caught:
        step(rows[BAD - 1])
    finding = only(w.report)
    assert caught.value.finding == finding
    assert w.report.run.replay is not None
    assert w.report.run.replay.kind == "step"
    assert (finding.step, finding.birth) == (BAD, "invalid")
    assert bits(model.state_dict()) == before


def test_a_step_function_may_skip_its_bad_step() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    w = watch(optimizer, on_nonfinite="skip")
    step = _decorated(model, optimizer, w)
    losses = [step(x) for x in batches()]
    assert [loss == loss for loss in losses] == [n != BAD for n in range(1, 7)]
    assert only(w.report).step == BAD
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_a_step_function_keeps_its_name() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert _decorated(model, optimizer, watch(optimizer)).__name__ == "step"


# -- several optimizers ----------------------------------------------------------------------------------------------


def fit_two(first: nn.Module, second: nn.Module, optimizers: list[torch.optim.Optimizer], rows: list[Tensor]) -> int:
    """Two models in turn, of which the second is given rows that may be zero."""
    done = 0
    for x in rows:
        optimizers[0].zero_grad()
        first(x).square().mean().backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        second(x / x.norm(dim=1, keepdim=True)).square().mean().backward()
        optimizers[1].step()
        done += 1
    return done


def _two() -> tuple[nn.Module, nn.Module, list[torch.optim.Optimizer]]:
    first, second = network(), network()
    return first, second, [torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]


def test_each_optimizer_is_judged_by_its_own_gradients() -> None:
    first, second, optimizers = _two()
    with watch(*optimizers) as w:
        fit_two(first, second, optimizers, batches())
    assert only(w.report).step == BAD
    assert all(bool(p.isfinite().all()) for m in (first, second) for p in m.parameters())


def test_an_optimizer_that_is_not_watched_gives_no_alarm() -> None:
    first, second, optimizers = _two()
    with watch(optimizers[0]) as w:
        assert fit_two(first, second, optimizers, batches()) == 6
    assert w.report.verdict == "clean"
    assert all(bool(p.isfinite().all()) for p in first.parameters())


def test_without_a_name_all_optimizers_are_watched() -> None:
    first, second, optimizers = _two()
    with watch() as w:
        fit_two(first, second, optimizers, batches())
    assert only(w.report).step == BAD


@pytest.mark.breadth
def test_models_among_the_optimizers_are_passed_over() -> None:
    first, second, optimizers = _two()
    with watch(first, second, optimizers[1]) as w:
        fit_two(first, second, optimizers, batches())
    assert only(w.report).step == BAD


def fit_together(
    first: nn.Module, second: nn.Module, optimizers: list[torch.optim.Optimizer], rows: list[Tensor], *, clears: bool
) -> int:
    """Two models whose losses are differentiated at once; the second's gradients may be cleared before its step."""
    done = 0
    for x in rows:
        for optimizer in optimizers:
            optimizer.zero_grad()
        scale = x.norm(dim=1, keepdim=True)
        # the loss is finite, and the gradient of the root is not
        (first(x).square().mean() + (second(x) * 0 + scale).sqrt().mean()).backward()
        optimizers[0].step()
        if clears:
            for parameter in second.parameters():
                parameter.grad = None
        optimizers[1].step()
        done += 1
    return done


def test_the_second_of_two_optimizers_of_one_backward_is_explained_as_before_the_first_moved() -> None:
    first, second, optimizers = _two()
    with watch(*optimizers) as w:
        fit_together(first, second, optimizers, batches(), clears=False)
    assert (only(w.report).step, only(w.report).phase) == (BAD, "backward")
    assert all(bool(p.isfinite().all()) for m in (first, second) for p in m.parameters())


@pytest.mark.breadth
def test_gradients_that_are_cleared_before_the_second_of_two_steps_give_no_alarm() -> None:
    first, second, optimizers = _two()
    with watch(*optimizers) as w:
        assert fit_together(first, second, optimizers, [*batches()] * 3, clears=True) == 18
    assert w.report.verdict == "clean"


@pytest.mark.breadth
def test_two_optimizers_that_step_together_for_the_first_time_are_refused_with_the_reason() -> None:
    first, second, optimizers = _two()
    with watch(*optimizers) as w:
        fit_together(first, second, optimizers, batches(1), clears=False)
    assert w.report.verdict == "inconclusive"
    assert any("another optimizer has stepped on the gradients" in note for note in w.report.coverage.notes)


# -- what is bad, and what only looks so -----------------------------------------------------------------------------


def fit_by(weight: Tensor, optimizer: torch.optim.Optimizer, rows: list[Any], loss_of: Callable[..., Tensor]) -> int:
    """A training with a loss that is given."""
    done = 0
    for x in rows:
        optimizer.zero_grad()
        loss = loss_of(weight, x)
        loss.backward()
        optimizer.step()
        done += 1
    return done


def _weighed(
    rows: list[Any], loss_of: Callable[..., Tensor], make: Callable[..., Any] = torch.optim.SGD, **more: Any
) -> tuple[Report, int, Tensor]:
    weight = torch.ones(3, requires_grad=True)
    optimizer, done = make([weight], **{"lr": 0.1, **more}), -1
    with watch(optimizer) as w:
        done = fit_by(weight, optimizer, rows, loss_of)
    return w.report, done, weight


def _with_term(weight: Tensor, x: Tensor) -> Tensor:
    return (weight * x).mean() - torch.log(x).mean()


def _rooted(weight: Tensor, x: Tensor) -> Tensor:
    return torch.sqrt((weight * x).abs()).mean()


def test_a_bad_loss_is_found_though_its_gradients_are_finite() -> None:
    report, done, weight = _weighed([torch.ones(3), torch.tensor([1.0, 0.0, 1.0])], _with_term)
    assert (only(report).step, only(report).birth, done) == (2, "pole", -1)
    assert weight.grad is not None
    assert bool(weight.grad.isfinite().all())


def test_bad_gradients_are_found_though_the_loss_is_finite() -> None:
    report, done, weight = _weighed([torch.ones(3), torch.tensor([1.0, 0.0, 1.0])], _rooted)
    assert (only(report).step, only(report).phase, done) == (2, "backward", -1)
    assert weight.grad is not None
    assert weight.grad.isnan().tolist() == [False, True, False]


def _steep(weight: Tensor, x: Tensor) -> Tensor:
    return (weight * x).sum() * 1e25


def test_a_gradient_norm_that_overflows_is_no_error() -> None:
    report, done, weight = _weighed([torch.ones(3)] * 3, _steep, lr=1e-30)
    assert weight.grad is not None
    assert float(torch.linalg.vector_norm(weight.grad)) == INF
    # no error: a gradient out of all proportion is a warning
    assert ([f.name for f in report.damaging], report.findings, done) == (["steep-gradient"], (), 3)


def _flat(weight: Tensor, x: Tensor) -> Tensor:
    return (weight * x).sum() * 2


def test_weights_that_an_optimizer_has_spoilt_are_found_at_the_next_step_and_said() -> None:
    rows = [torch.tensor([1.0, 0.0, 1.0]) for _ in range(3)]
    report, done, weight = _weighed(rows, _flat, torch.optim.Adam, eps=0.0)
    assert done == -1
    assert weight.isnan().tolist() == [False, True, False]
    finding = only(report)
    assert (finding.step, finding.birth) == (2, "entered")
    # a step of this very run made it
    assert finding.rule == "WN004"
    said = "weight (spoilt during or before step 1 of Adam, lr 0.1, betas (0.9, 0.999), eps 0) holds NaN"
    assert said in finding.message
    assert "No operation of PyTorch made it" not in finding.explanation
    assert any("--start-step 1" in note for note in report.coverage.notes)
    assert any(note.endswith(": step 1, exp_avg 0, exp_avg_sq 0") for note in report.coverage.notes)


def test_a_weight_that_was_bad_before_the_first_step_is_no_optimizers_fault() -> None:
    weight = torch.tensor([1.0, float("nan")], requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.1)
    with watch(optimizer) as w:
        fit_by(weight, optimizer, [torch.ones(2)] * 2, _flat)
    assert only(w.report).step == 1
    assert "(bad before step 1) holds NaN at [1]" in only(w.report).message
    assert "Adam" not in only(w.report).message


def test_nan_that_comes_with_the_batch_is_not_laid_upon_the_weights() -> None:
    report, _, _ = _weighed([torch.ones(3), torch.tensor([1.0, float("nan"), 1.0])], _flat)
    assert (only(report).step, only(report).rule) == (2, "WN001")


def test_a_buffer_that_was_spoilt_before_is_said_to_be() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    model(torch.full((2, 3), INF))
    model.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(optimizer) as w:
        fit(model, optimizer, batches(None), Log())
    assert w.report.verdict == "nonfinite", w.report.coverage.notes
    told = [f.message for f in w.report.findings if f.rule == "WN004"]
    assert any("running_var (bad before step 1)" in message for message in told), told


def fit_sparse(table: nn.Embedding, optimizer: torch.optim.Optimizer, rows: list[Tensor]) -> int:
    """Scores of words, whose gradients are sparse."""
    done = 0
    for words in rows:
        optimizer.zero_grad()
        loss = torch.sqrt(table(words).sum(dim=1).abs()).mean()
        loss.backward()
        optimizer.step()
        done += 1
    return done


def _sparse(*, bad: bool) -> tuple[Report, bool]:
    """The report, and whether the row of zeros is as before."""
    torch.manual_seed(0)
    table = nn.Embedding(8, 4, sparse=True)
    with torch.no_grad():
        table.weight[5] = 0.0
    before = bits(table.weight[5])
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    rows = [torch.tensor([0, 1]), torch.tensor([2, 2]), torch.tensor([3, 5 if bad else 4])]
    with watch(optimizer) as w:
        fit_sparse(table, optimizer, rows)
    return w.report, bits(table.weight[5]) == before


def test_sparse_gradients_are_judged() -> None:
    report, unmoved = _sparse(bad=False)
    assert (report.verdict, unmoved) == ("clean", True)
    report, unmoved = _sparse(bad=True)
    assert (report.run.exit_status.whynan, unmoved) == (1, True)


def test_bad_sparse_gradients_are_explained() -> None:
    report, _ = _sparse(bad=True)
    assert (only(report).step, only(report).phase) == (3, "backward")


def _steps_by_itself(weight: Tensor) -> None:
    """A weight has an optimizer that steps as soon as its gradient is there."""
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(_: Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()

    weight.register_post_accumulate_grad_hook(step)


def fit_in_backward(model: nn.Module, rows: list[Tensor], log: Log) -> None:
    """A training whose steps are made while the gradients are."""
    for x in rows:
        log.before.append(bits(model.state_dict()))
        unit = x / x.norm(dim=1, keepdim=True)
        loss = model(unit).square().mean()
        loss.backward()
        log.calls += 1


def _watched_in_backward(bad: int | None) -> tuple[Report, Log, Any]:
    model, log = network(), Log()
    for parameter in model.parameters():
        _steps_by_itself(parameter)
    with watch() as w:
        fit_in_backward(model, batches(bad), log)
    return w.report, log, bits(model.state_dict())


@pytest.mark.breadth
def test_steps_inside_the_backward_are_judged_and_move_nothing() -> None:
    report, log, _ = _watched_in_backward(None)
    assert (report.verdict, log.calls) == ("clean", 6)
    report, log, weights = _watched_in_backward(BAD)
    assert (report.run.exit_status.whynan, log.calls) == (1, BAD - 1)
    assert weights == log.before[BAD - 1]


def test_a_bad_step_inside_the_backward_is_explained() -> None:
    report, _, _ = _watched_in_backward(BAD)
    assert (only(report).step, only(report).phase, only(report).op) == (BAD, "forward", "aten.div.Tensor")
    assert report.run.replay is not None
    assert report.run.replay.why.startswith("1 loss and 1 bad gradient identical")


def fit_roots_in_backward(scale: Tensor, shift: Tensor, rows: list[Tensor]) -> int:
    """The gradient of the root is bad, and the loss is not."""
    done = 0
    for x in rows:
        loss = ((x * scale).sqrt() + shift).sum()
        loss.backward()
        done += 1
    return done


def test_a_bad_gradient_inside_the_backward_is_explained() -> None:
    weights = [torch.ones(2, requires_grad=True), torch.zeros(2)]
    _steps_by_itself(weights[0])
    done = -1
    with watch() as w:
        done = fit_roots_in_backward(*weights, [torch.ones(2), torch.tensor([1.0, 0.0]), torch.ones(2)])
    assert done == -1
    assert (only(w.report).step, only(w.report).phase) == (2, "backward")


@pytest.mark.breadth
def test_steps_inside_the_backward_that_moved_other_weights_are_no_step_to_run_again() -> None:
    weights = [torch.ones(2, requires_grad=True) for _ in range(2)]
    for weight in weights:
        _steps_by_itself(weight)
    with watch() as w:
        fit_roots_in_backward(*weights, [torch.ones(2), torch.tensor([1.0, 0.0]), torch.ones(2)])
    assert w.report.verdict == "inconclusive"
    assert any("other losses or gradients" in note for note in w.report.coverage.notes)


# -- a loss scaler ---------------------------------------------------------------------------------------------------


def fit_scaled(model: nn.Module, optimizer: Any, scaler: Any, steps: int, x: Tensor) -> int:
    """A training of which a scaler skips the steps whose gradients overflow."""
    done = 0
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        done += 1
    return done


def _scaled(slope: float, steps: int = 12, **more: Any) -> tuple[Report, int, Any]:
    # the loss itself stays small: the weights are
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1e-3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9, **more)
    scaler, done = torch.amp.GradScaler("cpu", init_scale=2.0**126), -1
    with watch(optimizer) as w:
        done = fit_scaled(model, optimizer, scaler, steps, torch.full((1, 2), slope))
    return w.report, done, scaler


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_a_scaler_skips_give_no_alarm(fused: bool) -> None:
    report, done, scaler = _scaled(2.0**7, fused=fused)
    assert (report.verdict, done) == ("clean", 12)
    assert scaler.get_scale() == 2.0**120


def fit_rooted(weight: Tensor, optimizer: Any, scaler: Any) -> int:
    """A training whose gradients are NaN at every scale, and whose loss never is."""
    done = 0
    for _ in range(12):
        optimizer.zero_grad()
        scaler.scale((weight * 0).sqrt().sum() + weight.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        done += 1
    return done


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_that_skips_on_end_down_to_its_least_is_told_of(fused: bool) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3, fused=fused)
    scaler, done = torch.amp.GradScaler("cpu", init_scale=16.0), -1
    with watch(optimizer) as w:
        done = fit_rooted(weight, optimizer, scaler)
    assert done == -1
    assert scaler.get_scale() == 16.0 / 2**7
    assert w.report.run.exit_status.whynan == 1
    assert [step.skipped for step in w.report.run.history] == [True] * 8


def fit_half(model: nn.Module, optimizer: Any, scaler: Any, logged: list[Any]) -> None:
    """A loss in float16, which is out of range once it is scaled; its gradients are not."""
    for _ in range(3):
        optimizer.zero_grad()
        # of one element, not a number: it stays half when it is scaled
        scaled = scaler.scale((model(torch.ones(1, 2)) + 2).half().mean(0))
        scaled.backward()
        logged.append((scaled.item(), float(model.weight.grad.norm())))
        scaler.step(optimizer)
        scaler.update()


def test_a_loss_that_only_its_scale_makes_infinite_gives_no_alarm() -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler, logged = torch.amp.GradScaler("cpu", init_scale=2.0**15), []
    with watch(optimizer) as w:
        fit_half(model, optimizer, scaler, logged)
    assert all(loss == INF and norm < INF for loss, norm in logged)
    assert scaler.get_scale() == 2.0**15
    assert (w.report.verdict, len(logged)) == ("clean", 3)


def fit_outgrown(model: nn.Module, optimizer: Any, scaler: Any, steps: int = 4, *, many: bool = False) -> int:
    """A training whose loss is Inf from the third step on, at any scale, and whose gradients never are."""
    done = 0
    for step in range(steps):
        out = model(torch.ones(1, 2))
        loss = out.sum() + torch.full((2,), 1e20 if step > 1 else 1.0).square().sum()
        scaled = scaler.scale([loss, out.sum()])[0] if many else scaler.scale(loss)
        # after it was scaled
        optimizer.zero_grad()
        scaled.backward()
        scaler.step(optimizer)
        scaler.update()
        done += 1
    return done


@pytest.mark.parametrize("many", [False, True])
def test_a_loss_that_is_infinite_before_its_scale_is_told_of(many: bool) -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    scaler, done = torch.amp.GradScaler("cpu", init_scale=2.0), -1
    with watch(optimizer) as w:
        done = fit_outgrown(model, optimizer, scaler, many=many)
    found = only(w.report)
    assert (found.step, found.op, found.birth) == (3, "aten.pow.Tensor_Scalar", "overflow")
    assert done == -1
    assert "faithful" in str(w.report)


def test_a_skipped_step_whose_loss_is_infinite_before_its_scale_is_told_of() -> None:
    weight = torch.full((2,), 1e30, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=2.0)
    with watch(optimizer) as w:
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(weight.pow(4).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert next((f.step, f.op) for f in w.report.findings) == (1, "aten.pow.Tensor_Scalar")


# -- a step that tries points ----------------------------------------------------------------------------------------


def fit_probing(model: nn.Linear, optimizer: Any, tried: list[float], *, wall: float, steps: int = 3) -> int:
    """L-BFGS on a parabola with a wall behind which there is nothing."""

    def closure() -> Tensor:
        optimizer.zero_grad()
        out = model(torch.ones(1))
        loss = (out - 3).square().sum()
        if float(model.weight.detach()) > wall:
            # Inf, and its gradient is Inf - Inf
            loss = torch.exp(out * 1e4).sum() - torch.sqrt(out - out.detach()).sum()
        loss.backward()
        tried.append(loss.item())
        return loss

    done = 0
    for _ in range(steps):
        optimizer.step(closure)
        done += 1
    return done


def _probing(search: str | None = None) -> tuple[nn.Linear, torch.optim.LBFGS]:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model, torch.optim.LBFGS(model.parameters(), lr=6.0, line_search_fn=search)


def _probed(wall: float, *, search: str | None) -> tuple[Report, int, list[float], Tensor]:
    model, optimizer = _probing(search)
    tried: list[float] = []
    done = -1
    with watch(optimizer) as w:
        done = fit_probing(model, optimizer, tried, wall=wall)
    return w.report, done, tried, model.weight


@pytest.mark.full
@pytest.mark.breadth
def test_a_point_that_a_line_search_rejects_gives_no_alarm() -> None:
    report, done, tried, weight = _probed(4.0, search="strong_wolfe")
    assert INF in tried
    assert bool(weight.isfinite().all())
    assert (report.verdict, done) == ("clean", 3)


@pytest.mark.breadth
def test_a_bad_point_that_a_step_keeps_is_explained_and_put_back() -> None:
    report, done, tried, weight = _probed(4.0, search=None)
    assert INF in tried
    assert (report.verdict, done) == ("nonfinite", -1), report.coverage.notes
    assert report.findings[0].step == 1
    assert weight.tolist() == [[0.0]]


@pytest.mark.full
@pytest.mark.breadth
@pytest.mark.parametrize("wall", [4.0, -1.0], ids=["tried", "first"])
def test_a_bad_point_that_a_step_keeps_stays_where_the_program_goes_on(wall: float) -> None:
    """As it does by itself: also where the first point of a step is bad already."""
    apart, _ = _probing()
    fit_probing(apart, torch.optim.LBFGS(apart.parameters(), lr=6.0), [], wall=wall)
    assert not apart.weight.isfinite().all()
    model, optimizer = _probing()
    with watch(optimizer, on_nonfinite="continue") as w:
        fit_probing(model, optimizer, [], wall=wall)
    assert {f.step for f in w.report.findings} == {1}
    assert w.report.coverage.notes_of("more_bad_steps")[0].values["steps"] == 2
    torch.testing.assert_close(model.weight, apart.weight, rtol=0, atol=0, equal_nan=True)


def test_a_loss_that_is_bad_before_a_search_has_tried_anything_is_explained() -> None:
    """The first point is where the weights are; the gradient of a logarithm is finite below 0."""
    deviation = nn.Parameter(torch.tensor(-2.0))
    optimizer = torch.optim.LBFGS([deviation])

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.log(deviation) + deviation.square()
        loss.backward()
        return loss

    with watch(optimizer) as w:
        optimizer.step(closure)
    assert [(f.rule, f.step) for f in w.report.findings] == [("WN202", 1)]
    assert deviation.item() == -2.0


# -- the block itself ------------------------------------------------------------------------------------------------


def test_nothing_is_left_at_the_doors_after_a_block() -> None:
    from tests.quality.unharmed import standing

    before = standing()
    trained(OPTIMIZERS["adam"])
    assert standing() == before


def test_a_watch_may_follow_another() -> None:
    for _ in range(2):
        report, _, _, _ = trained(OPTIMIZERS["adam"])
        assert only(report).step == BAD


def test_the_report_is_the_same_document_when_it_is_read_again() -> None:
    report, _, _, _ = trained(OPTIMIZERS["adam"])
    assert copy.deepcopy(report) == report
    assert report.to_json()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("around", [whynan.trace, watch])
def test_a_watch_inside_of_another_region_is_refused_at_its_door(around: Callable[[], Any]) -> None:
    with around(), pytest.raises((UsageError, NestedTraceError)), watch():
        pass


# -- what is meant ---------------------------------------------------------------------------------------------------


def fit_with_a_reason(weight: Tensor, optimizer: Any) -> int:
    """Each step has a NaN in its loss, and says that it is meant."""
    done = 0
    for _ in range(3):
        optimizer.zero_grad()
        with whynan.allow("log-of-negative", reason="a test"):
            (weight.detach() - 2).log().sum().add(weight.sum()).backward()
        optimizer.step()
        done += 1
    return done


def test_what_is_allowed_is_no_bad_step() -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer, done = torch.optim.SGD([weight], lr=0.1), -1
    with watch(optimizer) as w:
        done = fit_with_a_reason(weight, optimizer)
    assert (done, w.report.findings, w.report.run.replay.kind) == (3, (), "none")
