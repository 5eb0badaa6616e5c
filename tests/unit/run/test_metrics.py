"""The numbers of each watched step: what a sink is given and when, and that none can harm a training."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whynan
from tests.unit.run.test_training import BAD, Log, batches, bits, fit, network
from whynan.errors import NonFiniteError, UsageError

pytestmark = pytest.mark.usefixtures("without_proofs")
watch = functools.partial(whynan.watch, quiet=True)


class Sink:
    """Keeps what it is given; `also` is done each time."""

    def __init__(self, also: Callable[[], object] = lambda: None) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self._also = also

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """One step."""
        self.rows.append((step, dict(numbers)))
        self._also()

    def column(self, name: str) -> list[float | None]:
        """One number of all steps."""
        return [numbers.get(f"whynan/{name}") for _, numbers in self.rows]


class Own(torch.optim.Optimizer):
    """Descends, and notes the norm of its gradients itself; `before` is called as a step begins."""

    def __init__(self, parameters: Any, before: Callable[[], object] = lambda: None) -> None:
        super().__init__(parameters, {})
        self.norms: list[float] = []
        self.before = before

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step, which looks around first where it has a closure."""
        self.before()
        if closure is not None:
            closure()
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.add_(0.5)
            closure()
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad, alpha=0.1)
        gradients = [p.grad.double().flatten() for p in self.param_groups[0]["params"]]
        self.norms.append(float(torch.cat(gradients).norm()))


def test_a_sink_is_given_each_step_before_the_next_one() -> None:
    model, log = network(), Log()
    sink, optimizer = Sink(), Own(model.parameters())
    seen: list[int] = []
    with watch(optimizer, metrics=sink):
        for x in batches(None):
            fit(model, optimizer, [x], log)
            seen.append(len(sink.rows))
    assert seen == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in sink.rows] == seen
    assert sink.column("loss") == log.losses
    assert sink.column("gradient_norm") == pytest.approx(optimizer.norms, rel=1e-5)
    assert set(sink.rows[0][1]) == {"whynan/loss", "whynan/gradient_norm"}


@pytest.mark.breadth
def test_the_history_of_a_bad_step_has_the_norms_before_it() -> None:
    model = network()
    optimizer = Own(model.parameters())
    with watch(optimizer) as w:
        fit(model, optimizer, batches(), Log())
    *before, bad = [step.norm for step in w.report.run.history]
    assert before == pytest.approx(optimizer.norms, rel=1e-5)
    assert len(before) == BAD - 1
    assert bad is not None
    assert bad != bad


@pytest.mark.breadth
def test_the_bad_step_is_told_of_and_its_replay_is_not() -> None:
    model, log = network(), Log()
    sink, optimizer = Sink(), torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(optimizer, metrics=[sink], on_nonfinite="skip") as w:
        fit(model, optimizer, batches(), log)
    assert w.report.run.replay.faithful is True
    assert [step for step, _ in sink.rows] == [1, 2, 3, 4, 5, 6]
    assert [loss == loss for loss in sink.column("loss") if loss is not None] == [n != BAD for n in range(1, 7)]


def test_a_step_function_tells_of_each_call() -> None:
    model = network()
    sink, optimizer = Sink(), Own(model.parameters())

    @watch(optimizer, metrics=sink)
    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        unit = x / x.norm(dim=1, keepdim=True)
        model(unit).square().mean().backward()
        optimizer.step()

    with pytest.raises(NonFiniteError):
        for x in batches():
            step(x)
    assert [step for step, _ in sink.rows] == list(range(1, BAD + 1))
    assert sink.column("gradient_norm")[:-1] == pytest.approx(optimizer.norms, rel=1e-5)


def _closed(optimizer: Any, model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    return closure


def test_a_step_that_calls_its_closure_twice_is_told_of_twice() -> None:
    model = network()
    sink, optimizer = Sink(), Own(model.parameters())
    with watch(optimizer, metrics=sink):
        for x in batches(None):
            optimizer.step(_closed(optimizer, model, x))
    assert [step for step, _ in sink.rows] == [n for n in range(1, 7) for _ in range(2)]
    assert sink.column("gradient_norm")[1::2] == pytest.approx(optimizer.norms, rel=1e-5)


def test_steps_inside_a_backward_are_told_of_as_it_ends() -> None:
    model = network()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for parameter, optimizer in optimizers.items():
        parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    sink = Sink()
    with watch(metrics=sink):
        for step, x in enumerate(batches(None, 2), 1):
            model(x).square().mean().backward()
            assert len(sink.rows) == step * len(optimizers)


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_a_scaler_skips_are_told_of_as_such(fused: bool) -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1e-3)
    sink, optimizer = Sink(), torch.optim.SGD(model.parameters(), lr=1e-9, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    scales: list[float] = []
    with watch(optimizer, metrics=sink) as w:
        for _ in range(9):
            optimizer.zero_grad()
            scales.append(scaler.get_scale())
            scaler.scale(model(torch.full((1, 2), 2.0**7)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert w.report.verdict == "clean"
    skipped = [scale > 2.0**120 for scale in scales]
    assert sink.column("skipped") == [float(each) for each in skipped]
    assert sink.column("scale") == scales
    assert [norm is None for norm in sink.column("gradient_norm")] == skipped


def test_each_optimizer_has_names_of_its_own_and_one_that_is_not_watched_none() -> None:
    models = [network() for _ in range(3)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    sink = Sink()
    with watch(*optimizers[:2], metrics=sink):
        for model, optimizer in zip(models, optimizers, strict=True):
            fit(model, optimizer, batches(None, 2), Log())
    loss = [(step, name) for step, numbers in sink.rows for name in numbers if name.endswith("loss")]
    assert loss == [(n, f"whynan/{second}loss") for second in ("", "optimizer2/") for n in (1, 2)]


def test_an_optimizer_inside_of_another_has_names_of_its_own() -> None:
    model = network()
    inner = Own(model.parameters())

    class Outer(torch.optim.Optimizer):
        """Hands its step on."""

        def step(self) -> None:  # type: ignore[override]
            inner.step()

    sink, optimizer = Sink(), Outer(model.parameters(), {})
    with watch(metrics=sink):
        fit(model, optimizer, batches(None), Log())
    told = [n["whynan/optimizer2/gradient_norm"] for _, n in sink.rows if "whynan/optimizer2/gradient_norm" in n]
    assert told == pytest.approx(inner.norms, rel=1e-5)


def test_a_step_that_raises_is_told_of_with_the_next() -> None:
    model = network()
    fails = [ZeroDivisionError]

    def once() -> None:
        if fails:
            raise fails.pop()

    sink, optimizer = Sink(), Own(model.parameters(), once)
    with watch(optimizer, metrics=sink):
        with pytest.raises(ZeroDivisionError):
            fit(model, optimizer, batches(None, 1), Log())
        fit(model, optimizer, batches(None, 2), Log())
    assert [step for step, _ in sink.rows] == [1, 2, 3]
    assert sink.column("gradient_norm")[1:] == pytest.approx(optimizer.norms, rel=1e-5)


# -- that none can harm ----------------------------------------------------------------------------------------------


def _trained(metrics: Any) -> Any:
    """A training that draws, with what it comes to."""
    model, log = network(), Log()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    random.seed(0)
    np.random.seed(0)
    rows = [x + torch.rand(()) * random.random() * np.random.rand() for x in batches(None)]
    if metrics is None:
        fit(model, optimizer, rows, log)
    else:
        with watch(optimizer, metrics=metrics):
            fit(model, optimizer, rows, log)
    return bits([model.state_dict(), log.losses, torch.rand(4), random.random(), np.random.rand()])


def test_a_sink_that_draws_random_numbers_takes_none_from_the_program() -> None:
    sink = Sink(lambda: (torch.rand(2), random.random(), np.random.rand()))
    assert _trained(sink) == _trained(None)
    assert len(sink.rows) == 6


def test_a_sink_that_raises_is_warned_of_once_and_given_no_more() -> None:
    def fail() -> None:
        torch.rand(1)
        if len(failing.rows) == 2:
            raise ConnectionError("no such host")

    failing, going = Sink(fail), Sink()
    with pytest.warns(RuntimeWarning) as caught:
        assert _trained([failing, going]) == _trained(None)
    assert [str(warning.message) for warning in caught] == [
        "the metric sink Sink raised ConnectionError: no such host at step 2 and is given no more numbers; your run "
        "goes on unharmed"
    ]
    assert (len(failing.rows), len(going.rows)) == (2, 6)


def test_where_warnings_are_errors_it_takes_nothing_down_either() -> None:
    def fail() -> None:
        raise ConnectionError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _trained(Sink(fail)) == _trained(None)


def test_what_a_sink_does_with_the_numbers_is_its_own() -> None:
    class Taking(Sink):
        def record(self, step: int, numbers: Any) -> None:
            numbers.clear()

    other = Sink()
    _trained([Taking(), other])
    assert all(len(numbers) == 2 for _, numbers in other.rows)


@pytest.mark.parametrize("given", [print, 3, "runs", [Sink(), None], torch.optim.SGD([torch.ones(1)], lr=1.0)])
def test_what_is_no_sink_is_refused_at_the_door(given: Any) -> None:
    with pytest.raises(UsageError, match=r"record\(step, numbers\)"):
        whynan.watch(metrics=given)


def test_the_protocol_is_public() -> None:
    assert isinstance(Sink(), whynan.MetricSink)
    assert not isinstance(Log(), whynan.MetricSink)
