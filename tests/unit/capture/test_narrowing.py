"""Looking at less: at some modules, from some step on, at so many steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode

from tests.unit.capture.seen import code, only, sinks, watched
from whynan.capture.torch import Capture
from whynan.faults import InternalError


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log()


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sqrt()


def network() -> nn.Sequential:
    """A logarithm that is NaN of -1 and the root of one that is negative of 0.5."""
    return nn.Sequential(Log(), Root(), nn.Sequential(nn.Identity()))


def training(bad: int, steps: int = 6, made: Any = None) -> Callable[[], list[Tensor]]:
    """A program of so many steps, in one of which the root is that of a negative number."""
    weight = nn.Parameter(torch.full((2,), 4.0))
    optimizer = made([weight]) if made is not None else torch.optim.SGD([weight], lr=0.01)

    def program() -> list[Tensor]:
        kept: list[Tensor] = []
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            (weight * (-1 if step == bad else 1)).sqrt().sum().backward()
            optimizer.step()
            kept.append(weight.detach().clone())
        return kept

    return program


# -- modules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found"), [("0", {"x.log()"}), ("1", {"x.sqrt()"}), ("Root", {"x.sqrt()"}), ("2.0", set())]
)
def test_only_the_modules_asked_for_are_looked_at(wanted: str, found: set[str]) -> None:
    net = network()

    def program() -> None:
        with torch.no_grad():
            # NaN in the logarithm, and in a root of its own
            net(torch.tensor([-1.0])).tolist()
            net(torch.tensor([0.5])).tolist()
            torch.tensor([-1.0]).asin().sqrt().tolist()

    report = watched(program, only=wanted).report
    assert {code(f) for f in report.findings if f.birth == "invalid"} == found


def test_a_birth_inside_reaches_what_the_module_gives_and_a_loss_out_of_sight_is_no_constant() -> None:
    net = nn.Sequential(nn.Linear(2, 2), Log(), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def program() -> None:
        with torch.no_grad():
            net[0].bias -= 10.0
        net(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    report = watched(program, only="1").report
    finding = only(report)
    assert (code(finding), finding.birth) == ("x.log()", "invalid")
    assert ("output", "1") in sinks(finding)
    assert report.verdict == "nonfinite"


def test_what_a_module_gives_is_only_read_where_nothing_is_bad_later() -> None:
    net = nn.Sequential(Log(), nn.Threshold(0.0, 0.5))

    def program() -> None:
        with torch.no_grad():
            net(torch.zeros(1)).tolist()

    report = watched(program, only="0").report
    assert (report.verdict, sinks(only(report))) == ("damaged", {("observed", "0")})
    bad = watched(lambda: torch.no_grad()(net)(torch.full((1,), -1.0)), only="0").report
    assert (bad.verdict, sinks(only(bad))) == ("nonfinite", {("output", "0")})


def test_the_output_of_the_whole_is_told_once() -> None:
    report = watched(lambda: torch.no_grad()(Log())(torch.full((1,), -1.0)), only="Log").report
    assert sinks(only(report)) == {("output", "output")}


def test_what_stands_inside_of_a_module_is_of_it() -> None:
    net = nn.Sequential(nn.Identity(), nn.Sequential(Root(), Log()))
    region = watched(lambda: net(torch.tensor([4.0])), only="1")
    assert region.report.coverage.events == 2
    assert region.report.coverage.notes == ("only the forward of 1 was looked at, and every backward",)


def test_a_backward_is_looked_at_as_a_whole() -> None:
    net = nn.Sequential(Root())
    x = torch.zeros(1, requires_grad=True)
    finding = only(watched(lambda: net(x).sum().backward(), only="Log").report)
    assert (finding.phase, finding.op) == ("backward", "aten.div.Tensor")
    assert ("gradient", "x") in sinks(finding)


def test_a_name_that_is_no_modules_is_said_with_those_that_are() -> None:
    net = network()
    region = watched(lambda: net(torch.ones(1)), only="encoder")
    (note,) = region.report.coverage.notes
    assert note == "no module called encoder ran; those that ran: Sequential, 0, 1, 2, 2.0"


def test_nothing_is_left_of_the_mode_after_a_module_that_raises() -> None:
    class Refusing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise LookupError("no")

    net = nn.Sequential(Refusing())

    def program() -> None:
        with pytest.raises(LookupError):
            net(torch.ones(1))
        assert _get_current_dispatch_mode_stack() == []
        torch.zeros(1).log()

    region = watched(program, only="Refusing")
    assert (region.report.verdict, region.report.coverage.events) == ("clean", 0)


def test_a_mode_that_a_module_leaves_behind_is_left_alone() -> None:
    left = FlopCounterMode(display=False)

    class Entering(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            left.__enter__()
            return x * 2

    net = nn.Sequential(Entering())

    def program() -> None:
        net(torch.ones(1))
        assert _get_current_dispatch_mode_stack() == [left.mode]
        left.__exit__(None, None, None)
        assert _get_current_dispatch_mode_stack() == []

    watched(program, only="0")


class Elusive(nn.Module):
    """A module that cannot be asked what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Root()

    def named_modules(self, *_: Any, **__: Any) -> Any:
        raise LookupError("who asks?")

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_a_name_that_cannot_be_found_is_an_error_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    net, seen = Elusive(), []
    with pytest.raises(InternalError):
        watched(lambda: net(torch.ones(1)), only="inner")
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    with pytest.warns(RuntimeWarning, match="LookupError"):
        watched(lambda: seen.append(net(torch.ones(1))), only="inner")
    assert len(seen) == 1


# -- steps -----------------------------------------------------------------------------------------------------------


def test_nothing_is_looked_at_before_the_first_step_asked_for() -> None:
    # the weights are bad already when it begins
    assert {f.birth for f in watched(training(bad=2), first_step=4).report.findings} == {"entered"}
    finding = only(watched(training(bad=4), first_step=4).report)
    assert (finding.birth, finding.step) == ("invalid", 4)
    assert code(finding) == "(weight * (-1 if step == bad else 1)).sqrt()"


def test_after_so_many_steps_nothing_is_looked_at() -> None:
    assert watched(training(bad=3), steps=2).report.verdict == "clean"
    region = watched(training(bad=2), steps=2)
    finding = only(region.report)
    assert finding.step == 2
    assert region.report.coverage.notes == ("looked at up to step 2, as --steps says",)


def test_a_window_of_steps_is_looked_at() -> None:
    verdicts = [watched(training(bad), first_step=3, steps=2).report.findings for bad in (3, 4, 5)]
    assert [[(f.birth, f.step) for f in found] for found in verdicts] == [[("invalid", 3)], [("invalid", 4)], []]


def test_a_step_that_is_never_reached_is_said() -> None:
    region = watched(training(bad=1), first_step=50)
    assert region.report.coverage.notes == ("step 50 was never reached, so nothing was looked at",)
    assert region.report.coverage.events == 0


@pytest.mark.parametrize("told", [{"first_step": 3}, {"steps": 2}, {"first_step": 2, "steps": 2}, {"first_step": 50}])
def test_weights_are_those_of_the_bare_run(told: dict[str, int]) -> None:
    kept: list[Tensor] = []
    watched(lambda: kept.extend(training(bad=4)()), **told)
    assert [w.numpy().tobytes() for w in kept] == [w.numpy().tobytes() for w in training(bad=4)()]


@pytest.mark.parametrize("told", [{"first_step": 3}, {"steps": 2}, {}, {"first_step": 2, "steps": 1}])
def test_hooks_that_the_program_has_put_on_later_are_called_as_ever(told: dict[str, int]) -> None:
    called: list[str] = []

    def program() -> None:
        handles = [
            register_optimizer_step_pre_hook(lambda *_: called.append("before")),
            register_optimizer_step_post_hook(lambda *_: called.append("after")),
        ]
        try:
            training(bad=0)()
        finally:
            for handle in handles:
                handle.remove()

    watched(program, **told)
    assert called == ["before", "after"] * 6


def _hooks() -> tuple[int, int, int]:
    from torch.optim import optimizer

    hooks = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
    return len(hooks[0]), len(hooks[1]), len(_get_current_dispatch_mode_stack())


@pytest.mark.parametrize("told", [{"first_step": 3}, {"steps": 2}, {"first_step": 50}, {"only": "x"}])
def test_nothing_stays_when_it_is_over(told: dict[str, Any]) -> None:
    before = _hooks(), torch.amp.GradScaler.step, nn.Module.__call__
    watched(training(bad=0), **told)
    assert (_hooks(), torch.amp.GradScaler.step, nn.Module.__call__) == before


def test_a_region_that_ends_early_waits_for_no_step() -> None:
    before = _hooks(), torch.amp.GradScaler.step, nn.Module.__call__
    with Capture(first_step=3) as capture:
        capture.leave()
        assert (_hooks(), torch.amp.GradScaler.step) == before[:2]
        training(bad=0)()
        assert nn.Module.__call__ is before[2]
    assert capture.trace is not None
    assert capture.trace.coverage.notes == ("step 3 was never reached, so nothing was looked at",)


def test_an_optimizer_need_not_be_hashable() -> None:
    class Compared(torch.optim.SGD):
        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(TypeError):
        hash(Compared([nn.Parameter(torch.ones(1))], lr=0.1))
    region = watched(training(bad=4, made=lambda p: Compared(p, lr=0.01)), first_step=3)
    assert only(region.report).step == 4


def test_a_step_that_a_scaler_skips_is_an_attempt() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def program() -> None:
        for step in range(1, 6):
            optimizer.zero_grad()
            loss = weight.sum() * (float("inf") if step == 2 else 1.0)
            scaler.scale((-loss).sqrt().sum() if step == 4 else loss).backward()
            scaler.step(optimizer)
            scaler.update()

    steps = {f.step for f in watched(program, first_step=3).report.findings}
    assert steps == {4}


def test_a_mode_that_the_program_is_in_when_it_begins_stays_its_own() -> None:
    class Counting(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.count += 1
            return func(*args, **(kwargs or {}))

    weight = nn.Parameter(torch.full((2,), 4.0))
    optimizer = torch.optim.SGD([weight], lr=0.01)

    def program() -> None:
        for step in range(3):
            with Counting():
                optimizer.zero_grad()
                (weight * (-1 if step == 2 else 1)).sqrt().sum().backward()
                optimizer.step()
            Counting.count = 0
            weight.add(1)
            assert Counting.count == 0

    region = watched(program, first_step=2)
    assert _get_current_dispatch_mode_stack() == []
    finding = only(region.report)
    assert (finding.birth, finding.step) == ("invalid", 3)


def test_nodes_that_autograd_numbered_before_are_not_taken_for_the_first_events() -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)

    def program() -> None:
        root = weight.sqrt()
        optimizer.step()
        loss = root.sum()
        loss.backward()

    finding = only(watched(program, first_step=2).report)
    # the root was not looked at: its backward is placed where the engine was called, and no forward is claimed
    assert (code(finding), finding.forward_op) == ("loss.backward()", None)
