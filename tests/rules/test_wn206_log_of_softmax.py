"""WN206 log-of-softmax: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F

inf = float("inf")


def a_method() -> object:
    return torch.tensor([[200.0, 0.0]]).softmax(-1).log()


def split_over_statements() -> object:
    logits = torch.tensor([[200.0, 0.0]])
    p = F.softmax(logits, dim=-1)
    chosen = p[:, 1]
    loss = -torch.log2(chosen)
    return loss.mean()


def written_out() -> object:
    logits = torch.tensor([[0.0, -200.0]])
    e = torch.exp(logits - logits.max(-1, keepdim=True).values)
    return (e / e.sum(-1, keepdim=True)).log()


def in_place() -> object:
    return torch.tensor([[200.0, 0.0]]).softmax(-1).log_()


def of_targets() -> object:
    return torch.xlogy(torch.tensor([[0.5, 0.5]]), torch.tensor([[200.0, 0.0]]).softmax(-1)).sum()


def its_gradient() -> object:
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    log_p = logits.softmax(-1).log()
    torch.where(log_p.isfinite(), log_p, 0.0).sum().backward()
    return logits.grad


def log_softmax() -> object:
    return torch.tensor([[200.0, 0.0]]).log_softmax(-1)


@pytest.mark.parametrize(
    "program",
    [a_method, split_over_statements, written_out, in_place, of_targets, its_gradient],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN206"
    assert said == snapshot


@pytest.mark.parametrize("program", [log_softmax])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_in_every_dtype(dtype: torch.dtype, first: Callable[..., dict[str, str]]) -> None:
    assert first(lambda: torch.tensor([[2e4, 0.0]], dtype=dtype).softmax(-1).log())["rule"] == "WN206"


def minus_infinity_among_the_logits() -> object:
    masked = torch.tensor([[0.0, -inf]]).softmax(-1)
    return (masked * 0 + 1).sub(1).log()


def a_probability_that_is_no_softmax() -> object:
    p = torch.tensor([[200.0, 0.0]]).softmax(-1)
    return (p * torch.tensor([[0.0, 0.0]])).log()


def a_negative_difference_of_softmax() -> object:
    return (torch.tensor([[200.0, 0.0]]).softmax(-1) - 0.5).log()


@pytest.mark.parametrize(
    "program", [minus_infinity_among_the_logits, a_probability_that_is_no_softmax, a_negative_difference_of_softmax]
)
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN206"


def of_a_masked_logit() -> object:
    logits = torch.tensor([[1.0, 2.0]]).masked_fill(torch.tensor([[False, True]]), -inf)
    return logits.softmax(-1).log()


def an_eps_that_is_0_in_the_dtype() -> object:
    return (torch.tensor([[200.0, 0.0]]).half().softmax(-1) + 1e-8).log()


@pytest.mark.parametrize(("program", "rule"), [(of_a_masked_logit, "WN201"), (an_eps_that_is_0_in_the_dtype, "WN704")])
def test_what_only_looks_like_it_has_its_own_rule(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
