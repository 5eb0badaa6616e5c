"""WN003 literal-in-sink: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

import whynan
from whynan.report.wording import headline


def a_mask_in_the_loss() -> object:
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    mask = torch.tensor([0.0, float("-inf")])
    loss = (scores + mask).mean()
    loss.backward()
    return scores.grad


def _step(
    optimizer: type[torch.optim.Optimizer], gradient: float = 1.0, lr: float = float("nan"), size: int = 2
) -> object:
    weight = torch.ones(size, requires_grad=True)
    weight.grad = torch.full((size,), gradient)
    made = optimizer([weight], lr=0.1)  # pyright: ignore[reportCallIssue]
    made.param_groups[0]["lr"] = lr  # as a scheduler does
    made.step()
    return weight


def a_learning_rate_of_sgd() -> object:
    return _step(torch.optim.SGD)


def a_learning_rate_of_adamw() -> object:
    return _step(torch.optim.AdamW)


def a_gradient_that_is_written() -> object:
    return _step(torch.optim.SGD, gradient=float("inf"), lr=0.1)


def outside_of_the_support() -> object:
    x = torch.tensor([1.0, -1.0], requires_grad=True)
    loss = -torch.distributions.HalfNormal(torch.tensor(1.0), validate_args=False).log_prob(x).mean()
    loss.backward()
    return loss.detach()


def inside_of_the_support() -> object:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = -torch.distributions.HalfNormal(torch.tensor(1.0), validate_args=False).log_prob(x).mean()
    loss.backward()
    return loss.detach()


def a_finite_learning_rate() -> object:
    return _step(torch.optim.AdamW, lr=0.1)


def a_mask_that_softmax_takes_away() -> object:
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    mask = torch.tensor([0.0, float("-inf")])
    loss = (scores + mask).softmax(0).square().sum()
    loss.backward()
    return scores.grad


@pytest.mark.parametrize(
    "program",
    [
        a_mask_in_the_loss,
        a_learning_rate_of_sgd,
        a_learning_rate_of_adamw,
        a_gradient_that_is_written,
        outside_of_the_support,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN003"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_mask_that_softmax_takes_away, a_finite_learning_rate, inside_of_the_support])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_the_headline_says_what_the_loss_holds_and_not_the_constant() -> None:
    (finding,) = whynan.explain(outside_of_the_support).findings
    assert finding.element.value == -float("inf")
    assert headline(finding, raised=False).startswith("Inf in the loss")


def test_an_update_whose_operands_are_too_large_to_keep_is_explained_as_well() -> None:
    (finding,) = whynan.explain(lambda: _step(torch.optim.AdamW, size=1 << 12)).findings
    assert (finding.rule, finding.birth, finding.op) == ("WN003", "literal", "aten.mul_.Tensor")
