"""A fix is verified only if the edited program makes its bad step and goes on, on weights that are put back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import whynan
from whynan.run.watch.replays import ReplayRerunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = pytest.mark.proof

PROGRAM = """
import torch
import whynan

w = torch.nn.Parameter(torch.tensor([0.5, 0.7, 1.0]))
optimizer = torch.optim.OPTIMIZER


def train():
    with whynan.watch(optimizer, quiet=True) as watched:
        for step in range(4):
            if step == 1:
                with torch.no_grad():
                    w[0] = 0.0
                optimizer.param_groups[0]["lr"] = RATE
            root = torch.sqrt(w.abs())
            loss = LOSS
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watched.report
"""
ROOTS, EXPONENTIAL, HUGE = "root.sum()", "(root + 0.5 * torch.exp(-w)).sum()", "root.sum() * (1e30 if step else 1)"


def program(optimizer: str, loss: str, rate: float = 0.01) -> str:
    return PROGRAM.replace("OPTIMIZER", optimizer).replace("LOSS", loss).replace("RATE", str(rate))


def verdict_of(module: ModuleType) -> Any:
    """Of the first change, which is guarded where it holds: the root of a magnitude has no slope at 0."""
    (finding,) = module.train().findings
    assert finding.step == 2
    return finding.fixes[0].verdict


def test_a_fix_after_which_the_program_goes_on_holds(loaded: Callable[[str], ModuleType]) -> None:
    assert verdict_of(loaded(program("SGD([w], lr=0.01)", EXPONENTIAL))).status == "guarded"


@pytest.mark.full
def test_a_fix_that_moves_the_failure_to_the_next_step_is_not(loaded: Callable[[str], ModuleType]) -> None:
    """The twin: a rate at which the finite step takes the weights to where the exponential overflows."""
    verdict = verdict_of(loaded(program("SGD([w], lr=0.01)", EXPONENTIAL, rate=1e3)))
    assert verdict.status == "unverified"
    assert "with it step 3 is bad: NaN or Inf in the loss and the gradients" in verdict.why
    assert "behind it, the program gives Inf at" in verdict.why
    assert "_0.py:17 (WN203 exp-overflow)" in verdict.why


@pytest.mark.full
def test_a_fix_after_which_the_step_spoils_the_optimizers_state_is_not(loaded: Callable[[str], ModuleType]) -> None:
    verdict = verdict_of(loaded(program("Adam([w], lr=0.01)", HUGE)))
    assert verdict.status == "unverified"
    assert "with it step 2 leaves NaN or Inf in exp_avg_sq of the optimizer" in verdict.why


def test_a_huge_gradient_that_an_optimizer_stands_is_no_harm(loaded: Callable[[str], ModuleType]) -> None:
    """The twin: an optimizer that takes the signs of the same gradients."""
    assert verdict_of(loaded(program("Rprop([w], lr=1e-4)", HUGE))).status == "guarded"


@pytest.mark.full
def test_a_fix_after_which_the_losses_are_far_larger_is_not(loaded: Callable[[str], ModuleType]) -> None:
    """Finite as all of them are: a rate with which each step is five times as long as the one before."""
    verdict = verdict_of(loaded(program("SGD([w], lr=0.01)", "(root + w ** 2).sum()", rate=3.0)))
    assert verdict.status == "unverified"
    assert "with it the loss, of a magnitude of at most 4.28 up to that step, is " in verdict.why
    assert " as a rule in those after it" in verdict.why


@pytest.mark.full
def test_a_fix_after_which_the_step_spoils_the_weights_is_not(loaded: Callable[[str], ModuleType]) -> None:
    verdict = verdict_of(loaded(program("SGD([w], lr=0.01)", HUGE, rate=1e30)))
    assert verdict.status == "unverified"
    assert "with it step 2 leaves NaN or Inf in the weights" in verdict.why


def test_what_cannot_be_gone_on_with_says_nothing_against_a_fix(loaded: Callable[[str], ModuleType]) -> None:
    """The step is made; the next one is not, for the program would write a file before it."""
    writes = "optimizer.step()\n            if step == 1:\n                open('log.txt', 'w').close()"
    text = program("SGD([w], lr=0.01)", EXPONENTIAL, rate=1e3).replace("optimizer.step()", writes)
    assert verdict_of(loaded(text)).status == "guarded"


RAISING = """
import torch
import whynan

w = torch.nn.Parameter(torch.tensor([0.5, 0.7, 1.0]))
optimizer = torch.optim.SGD([w], lr=0.01)


def train(watched):
    with watched:
        for step in range(5):
            scale = torch.full((3,), float(step != 2)) * w.detach()
            share = scale / scale.sum()
            DRAW
            loss = (share * w.exp()).sum()
            AHEAD
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def evaluate(watched):
    with watched, torch.no_grad():
        for step in range(5):
            scale = torch.full((3,), float(step != 2)) * w.detach()
            share = scale / scale.sum()
            DRAW

"""
DRAWS = {
    "raised by torch": "torch.multinomial(share + 0.1, 1)",
    "its own test": "if torch.isnan(share).any():\n                raise ValueError('shares')",
}


def raising(draw: str, ahead: str = "pass") -> str:
    return RAISING.replace("DRAW", DRAWS[draw]).replace("AHEAD", ahead)


def findings_of(module: ModuleType, function: str) -> Any:
    watched = whynan.watch(module.optimizer, quiet=True)
    with ExitStack() as stack:
        # said so, it is nothing that the program is known to expect
        stack.enter_context(pytest.raises((RuntimeError, ValueError)))
        getattr(module, function)(watched)
    return watched.report.findings


@pytest.mark.parametrize("draw", [*DRAWS])
def test_a_training_that_raises_for_a_bad_number_goes_on_with_a_fix(
    draw: str, loaded: Callable[[str], ModuleType]
) -> None:
    (finding,) = findings_of(loaded(raising(draw)), "train")
    verdict = finding.fixes[0].verdict
    assert verdict.status == "guarded"
    assert verdict.why.endswith("with it the program makes the step and 10 more")


@pytest.mark.parametrize("draw", [*DRAWS])
def test_so_does_an_evaluation(draw: str, loaded: Callable[[str], ModuleType]) -> None:
    (finding,) = findings_of(loaded(raising(draw)), "evaluate")
    assert finding.fixes[0].verdict.status == "guarded"


@pytest.mark.parametrize("draw", [*DRAWS])
def test_a_training_that_raises_again_a_step_later_does_not(draw: str, loaded: Callable[[str], ModuleType]) -> None:
    """The twin: behind the step that the fix mends the program raises, for something else or for the same."""
    text = raising(draw, "w.data.fill_(float('nan')) if step == 2 else None")
    (finding,) = findings_of(loaded(text), "train")
    assert finding.fixes[0].verdict.status == "unverified"


@pytest.mark.parametrize("optimizer", ["SGD([w], lr=0.01, momentum=0.9)", "Adam([w], lr=0.01)"])
def test_the_weights_and_what_the_optimizer_keeps_are_put_back(
    optimizer: str, loaded: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = loaded(program(optimizer, ROOTS))
    states: list[str] = []
    original = ReplayRerunner.trial

    def trial(self: Any, *args: Any) -> Any:
        states.append(repr((module.w, module.optimizer.state_dict())))
        out = original(self, *args)
        states.append(repr((module.w, module.optimizer.state_dict())))
        return out

    monkeypatch.setattr(ReplayRerunner, "trial", trial)
    assert verdict_of(module).status == "guarded"
    assert len(states) >= 2
    assert len({*states}) == 1
