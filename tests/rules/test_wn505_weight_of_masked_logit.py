"""WN505 weight-of-masked-logit: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

inf = float("inf")


def soft_targets() -> object:
    logits = torch.tensor([[1.0, -inf]])
    return torch.nn.functional.cross_entropy(logits, torch.tensor([[1.0, 0.0]]))


def written_out() -> object:
    logits = torch.tensor([[1.0, -inf]])
    target = torch.tensor([[1.0, 0.0]])
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


def contrastive() -> object:
    z = torch.tensor([[0.6, 0.8], [0.8, 0.6], [0.0, 1.0]])
    own = torch.eye(3, dtype=torch.bool)
    scores = (z @ z.T).masked_fill(own, -inf)
    log_p = scores - torch.logsumexp(scores, dim=1, keepdim=True)
    positive = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    return -(positive * log_p).sum(1).mean()


def its_gradient() -> object:
    weight = torch.zeros(1, 2, requires_grad=True)
    log_p = torch.tensor([[1.0, -inf]]).log_softmax(-1)
    product = weight * log_p
    torch.where(log_p.isfinite(), product, 0.0).sum().backward()
    return weight.grad


def masked_with_the_smallest_number() -> object:
    logits = torch.tensor([[1.0, torch.finfo(torch.float32).min]])
    return torch.nn.functional.cross_entropy(logits, torch.tensor([[1.0, 0.0]]))


@pytest.mark.parametrize("program", [soft_targets, written_out, contrastive, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN505"
    assert said == snapshot


@pytest.mark.parametrize("program", [masked_with_the_smallest_number])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def its_own_probabilities() -> object:
    logits = torch.tensor([[1.0, -inf]])
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)


def another_infinity() -> object:
    logits = torch.tensor([[1.0, -inf]])
    return (torch.tensor([[1.0, 0.0]]) * logits).sum()


@pytest.mark.parametrize("program", [its_own_probabilities, another_infinity])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN505"
