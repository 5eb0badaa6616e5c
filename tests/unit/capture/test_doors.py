"""The stop rule: at which door of the program a run is asked whether it ends, and what has happened by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whynan
from tests.unit.capture.seen import code
from whynan.capture.torch import Capture
from whynan.capture.torch.interposition.wrappers import install_door
from whynan.config import Options
from whynan.records import Finding
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.region import Region


class Ending(Exception):  # noqa: N818
    """What the run is to end with."""


class Asked:
    """Answers the question at a door as a run does, by the errors so far; remembers what it could see there."""

    def __init__(self, state: Callable[[], Any] = lambda: None, *, ends: bool = True) -> None:
        self.seen: list[Any] = []
        self.findings: list[tuple[Finding, ...]] = []
        self._state = state
        self._ends = ends
        self.region = Region(Options(), command="region", watched=CaptureOptions(on_sink=self._ask), quiet=True)

    def run(self, program: Callable[[], object]) -> bool:
        """Run a program; whether it was ended."""
        try:
            with self.region:
                program()
        except Ending:
            return True
        return False

    def _ask(self, capture: Capture) -> BaseException | None:
        errors = tuple(f for f in self.region.preview(capture).findings if f.severity == "error")
        if not errors:
            return None
        self.seen.append(self._state())
        self.findings.append(errors)
        return Ending() if self._ends else None


def test_a_run_ends_at_the_step_that_would_consume_before_a_weight_moves() -> None:
    weight = nn.Parameter(torch.tensor([4.0, 1.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    passed: list[int] = []

    def program() -> None:
        for step in range(3):
            optimizer.zero_grad()
            (weight * (-1 if step == 1 else 1)).sqrt().sum().backward()
            passed.append(step)
            optimizer.step()
            passed.append(step)

    asked = Asked(lambda: weight.detach().clone())
    assert asked.run(program)
    assert passed == [0, 0, 1]
    assert torch.equal(asked.seen[0], weight)
    assert weight.isfinite().all()
    (finding,) = asked.findings[0]
    assert (finding.birth, finding.step, code(finding)) == ("invalid", 2, "(weight * (-1 if step == 1 else 1)).sqrt()")


def test_a_birth_in_the_step_ends_the_run_after_the_step() -> None:
    weight = nn.Parameter(torch.tensor([0.0, 1.0]))
    optimizer = torch.optim.Adam([weight], lr=0.1, eps=0.0)

    def program() -> None:
        (weight * torch.tensor([0.0, 1.0])).sum().backward()
        optimizer.step()
        raise AssertionError("the run has gone on")

    asked = Asked(lambda: weight.isnan().tolist())
    assert asked.run(program)
    assert asked.seen == [[True, False]]
    assert asked.findings[0][0].phase == "optimizer"


def test_an_inference_ends_before_the_next_outermost_call() -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sqrt()

    order: list[str] = []

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Root()

        def forward(self, x: Tensor) -> Tensor:
            found = self.inner(x)
            order.append("inside")
            return found * 2

    def program() -> None:
        with torch.no_grad():
            model = Whole()
            for x in (-1.0, 1.0):
                model(torch.tensor([x])).mean().item()
                order.append("after")

    assert Asked().run(program)
    assert order == ["inside", "after"]


def test_a_step_by_hand_ends_the_run_at_the_next_door() -> None:
    weight = torch.tensor([4.0], requires_grad=True)
    steps: list[int] = []

    def program() -> None:
        for step in range(4):
            (weight * (-1 if step == 1 else 1)).sqrt().sum().backward()
            with torch.no_grad():
                weight.sub_(weight.grad, alpha=0.1)
            weight.grad = None
            steps.append(step)

    asked = Asked()
    assert asked.run(program)
    # the next is the engine, called for the step after
    assert steps == [0, 1]
    assert asked.findings[0][0].step is None


def _literals() -> None:
    mask = torch.full((2, 2), float("-inf"))
    with torch.no_grad():
        nn.Identity()(mask)
        nn.Identity()(torch.ones(2) * float("inf"))


def _observed() -> None:
    print(end=str(torch.zeros(1).log().item())[:0])
    torch.tensor([-1.0]).sqrt().tolist()
    nn.Linear(1, 1)(torch.ones(1, 1)).sum().backward()


def _absorbed() -> None:
    with torch.no_grad():
        nn.Identity()(torch.zeros(2).div(torch.zeros(2)).nan_to_num())


def _skipped() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(weight.sum() * 8).backward()
        scaler.step(optimizer)
        scaler.update(1.0)


def _probed() -> None:
    """A search whose first probe is far out, where the loss is Inf, and that comes back."""
    x = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], lr=2000.0, max_iter=5, line_search_fn="strong_wolfe")
    losses: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (x.exp() - x * 3).sum()
        loss.backward()
        losses.append(float(loss.detach()))
        return loss

    optimizer.step(closure)
    assert torch.inf in losses
    assert x.isfinite().all()


def _discarded() -> None:
    weight = torch.zeros(2, requires_grad=True)
    weight.sqrt().sum().backward()
    weight.grad = None
    nn.Linear(1, 1)(torch.ones(1, 1)).sum().backward()


@pytest.mark.parametrize("program", [_literals, _observed, _absorbed, _skipped, _probed, _discarded])
def test_what_is_no_fatal_sink_ends_no_run(program: Callable[[], None]) -> None:
    asked = Asked()
    assert not asked.run(program)
    assert asked.seen == []


def test_a_run_that_is_to_go_on_is_asked_only_where_something_is_new() -> None:
    weight = nn.Parameter(torch.tensor([4.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    steps: list[int] = []

    def program() -> None:
        for step in range(4):
            optimizer.zero_grad()
            (weight * (-1 if step == 1 else 1)).sqrt().sum().backward()
            optimizer.step()
            with torch.no_grad():
                weight.fill_(4.0)
            steps.append(step)

    asked = Asked(lambda: list(steps), ends=False)
    assert not asked.run(program)
    # before the step and after it, where the parameter is bad too
    assert asked.seen == [[0], [0]]
    assert asked.region.report.verdict == "nonfinite"


def test_a_program_that_catches_the_end_is_looked_at_as_before() -> None:
    """The end is raised as an exception: a program that has its own idea of those goes on, phases right."""
    weight = nn.Parameter(torch.tensor([4.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def program() -> None:
        for step in range(3):
            optimizer.zero_grad()
            try:
                (weight * (-1 if step == 0 else 1)).sqrt().sum().backward()
                optimizer.step()
            except Ending:
                continue
        with torch.no_grad():
            nn.Identity()(torch.zeros(1) / torch.zeros(1))
            nn.Identity()(torch.zeros(1))

    asked = Asked()
    assert asked.run(program)
    phases = [(f.phase, code(f)) for f in asked.region.report.findings]
    assert ("forward", "torch.zeros(1) / torch.zeros(1)") in phases


def test_an_engine_that_was_stopped_at_its_door_is_not_thought_to_run() -> None:
    weight = torch.tensor([4.0], requires_grad=True)

    def program() -> None:
        (-weight).sqrt().sum().backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.1)
        with pytest.raises(Ending):
            (weight * 1).sum().backward()
        with torch.no_grad():
            nn.Identity()(torch.zeros(1) / torch.zeros(1))
            nn.Identity()(torch.zeros(1))

    asked = Asked()
    assert asked.run(program)
    assert "forward" in {f.phase for f in asked.region.report.findings if f.op == "aten.div.Tensor"}


def test_an_optimizer_that_fails_is_not_thought_to_step_on() -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise LookupError("no step")

    optimizer = Failing([nn.Parameter(torch.ones(1))], lr=0.1)

    class Dividing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / x

    def program() -> None:
        with pytest.raises(LookupError):
            optimizer.step()
        with torch.no_grad():
            Dividing()(torch.zeros(1))
            nn.Identity()(torch.zeros(1))

    asked = Asked()
    assert asked.run(program)
    assert [(f.phase, code(f)) for f in asked.findings[0]] == [("forward", "x / x")]


def test_the_question_itself_computes_nothing_of_the_programs() -> None:
    weight = nn.Parameter(torch.tensor([4.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def program() -> None:
        (-weight).sqrt().sum().backward()
        optimizer.step()

    torch.manual_seed(0)
    state = torch.get_rng_state()
    asked = Asked(ends=False)
    asked.run(program)
    assert len(asked.seen) >= 1
    assert torch.equal(torch.get_rng_state(), state)


# -- how a door is taken off -----------------------------------------------------------------------------------------


class Owner:
    """Has a function of its own, and inherits another."""

    def own(self) -> list[str]:
        return ["original"]


class Heir(Owner):
    pass


def door(name: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        return lambda self: [name, *original(self)]

    return make


@pytest.mark.parametrize("owner", [Owner, Heir])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_a_door_is_taken_from_under_others(owner: type[Owner], order: tuple[int, ...]) -> None:
    before = dict(owner.__dict__)
    off = [install_door(owner, "own", door(name)) for name in "abc"]
    left = ["c", "b", "a", "original"]
    assert owner().own() == left
    for i in order:
        off[i]()
        left.remove("abc"[i])
        assert owner().own() == left
    assert owner.__dict__ == before


def test_a_door_stays_under_what_the_program_has_put_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    off = install_door(Owner, "own", door("ours"))
    around = Owner.own
    with monkeypatch.context() as patch:
        patch.setattr(Owner, "own", lambda self: ["theirs", *around(self)])
        assert off() is None
        assert Owner().own() == ["theirs", "ours", "original"]
    assert off() is not None


def test_a_trace_that_ends_in_a_watch_leaves_no_door_in_its_way() -> None:
    trace = Capture()
    call, tolist = nn.Module.__call__, Tensor.tolist
    trace.__enter__()
    with whynan.watch():
        trace.__exit__(None, None, None)
        assert (Tensor.tolist.__wrapped__, nn.Module.__call__.__wrapped__) == (tolist, call)  # type: ignore[attr-defined]
    assert (Tensor.tolist, nn.Module.__call__) == (tolist, call)
